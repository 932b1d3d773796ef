"""The parts of the OpenAPI document that the code of a route cannot tell: bodies, options and refusals."""

from __future__ import annotations

from typing import Any

from itocast.serve.asked import Options

REFUSALS = {
    401: "the token is missing or wrong",
    403: "the header Host is not of this machine",
    404: "there is no such model",
    406: "neither JSON nor CSV is accepted",
    408: "the body did not arrive in time",
    409: "the model does not learn from outcomes",
    413: "the body is too large",
    415: "the body is neither JSON nor CSV in UTF-8",
    422: "the request cannot be answered: the message says what is wrong and what to do",
    503: "too many requests wait, or a file cannot be written",
    504: "there was no answer in time",
}
CELL = {"type": ["number", "string", "boolean", "null"]}
TABLE = {
    "anyOf": [
        {"type": "object", "additionalProperties": {"type": "array", "items": CELL}, "title": "Columns"},
        {"type": "array", "items": {"type": "object", "additionalProperties": CELL}, "title": "Rows"},
        {"type": "null"},
    ]
}
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
FORECAST = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "version": {"type": "string"},
        "forecast": {"type": "array", "items": {"type": "object"}},
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["model", "version", "forecast", "warnings"],
}
OBSERVED = {
    "type": "object",
    "properties": {"model": {"type": "string"}, "version": {"type": "string"}, "learned": {"type": "integer"}},
    "required": ["model", "version", "learned"],
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses of some statuses, each with its message."""
    content = {"application/json": {"schema": ERROR}}
    return {status: {"description": REFUSALS[status], "content": content} for status in statuses}


def answer(schema: dict[str, Any], csv: bool = False) -> dict[int | str, dict[str, Any]]:
    """The response 200."""
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if csv:
        content["text/csv"] = {"schema": {"type": "string"}}
    return {200: {"description": "the answer", "content": content}}


def asking(names: tuple[str, ...], tables: tuple[str, ...], form: bool) -> dict[str, Any]:
    """Body and query of a route that takes tables and some of the options."""
    fields = {name: _field(name) for name in names}
    body = {
        "type": "object", "additionalProperties": False, "properties": fields | dict.fromkeys(tables, TABLE),
    }  # fmt: skip
    query = [
        {"name": name, "in": "query", "required": False, "description": field["description"],
         "schema": {"type": "string"}}
        for name, field in fields.items()
    ]  # fmt: skip
    if form:
        query.append({
            "name": "format", "in": "query", "required": False, "description": "Of the answer; otherwise by Accept.",
            "schema": {"enum": ["json", "csv"]},
        })  # fmt: skip
    content = {"application/json": {"schema": body}, "text/csv": {"schema": {"type": "string"}}}
    return {"parameters": query, "requestBody": {"required": True, "content": content}}


def _field(name: str) -> dict[str, Any]:
    field = Options.model_json_schema()["properties"][name]
    return {key: value for key, value in field.items() if key != "title"}


def secure(document: dict[str, Any]) -> None:
    """Say in a finished document that requests bring a token."""
    document.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
