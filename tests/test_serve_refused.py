"""Requests that are wrong: each is refused with a message, and the server goes on."""

from __future__ import annotations

import json

import pytest
from serving import running

JSON, CSV = {"content-type": "application/json"}, {"content-type": "text/csv"}
HOURS = [f"2024-02-01 {hour:02d}:00" for hour in range(24)]
GOOD = {"ds": HOURS, "y": [50.0 + hour for hour in range(24)]}


@pytest.fixture(scope="module")
def client(tmp_path_factory, single, panel):
    folder = tmp_path_factory.mktemp("refused")
    single[1].save(folder / "single")
    panel[1].save(folder / "panel")
    with running(folder / "single", folder / "panel") as client:
        yield client


def table(**columns) -> dict:
    return {"model": "single", "data": GOOD | columns}


def many(**columns) -> dict:
    usual = {"unique_id": ["a", "a"], "ds": ["2024-01-01", "2024-01-02"], "y": [1, 2], "heat": [1, 1]}
    return {"model": "panel", "data": usual | {"promotion": [1, 1], "place": ["sea", "sea"]} | columns}


def raw(y: bytes) -> bytes:
    return b'{"model": "single", "data": {"ds": ["2024-02-01"], "y": [' + y + b"]}}"


BODIES = {
    "nothing that is asked of one of two models": ({}, "model is missing"),
    "a list": ([1, 2], "the body is a list"),
    "a number": (7, "the body is a number"),
    "null": (None, "the body is null"),
    "an unknown option": ({"model": "single", "levels": 80}, "no setting 'levels'"),
    "a model that is a number": ({"model": 5}, "model=5"),
    "a level of text": ({"model": "single", "level": ["wide"]}, "'wide'"),
    "a level of 100": ({"model": "single", "level": 100}, "level=100"),
    "a level below 1": ({"model": "single", "level": -3}, "level=-3"),
    "a level that is an object": ({"model": "single", "level": {"a": 1}}, "valid list"),
    "a level of true": ({"model": "single", "level": True}, "level=True"),
    "a quantile of 1": ({"model": "single", "quantiles": [1]}, "quantiles"),
    "no paths": ({"model": "single", "paths": 0}, "paths=0"),
    "half a path": ({"model": "single", "paths": 1.5}, "paths=1.5"),
    "very many paths": ({"model": "single", "paths": 10**12}, "more than the 100,000"),
    "a share of 5": ({"model": "single", "abstain": 5}, "abstain=5"),
    "future where there is none": (table() | {"future": {"ds": ["2024-02-02"]}}, "no covariates known ahead"),
    "data that is text": ({"model": "single", "data": "ds,y"}, "data is text"),
    "rows that are lists": ({"model": "single", "data": [[1, 2]]}, "data is a list"),
    "columns that are numbers": ({"model": "single", "data": {"ds": 1, "y": 2}}, "data is an object"),
    "no rows": ({"model": "single", "data": []}, "data holds no rows"),
    "empty columns": ({"model": "single", "data": {"ds": [], "y": []}}, "data holds no rows"),
    "no columns": ({"model": "single", "data": {}}, "data holds no rows"),
    "rows without cells": ({"model": "single", "data": [{}, {}]}, "data holds no rows"),
    "columns of different length": (table(y=[1, 2]), "different length"),
    "cells that are lists": (table(y=[[1]] * 24), "column 'y' holds a list"),
    "cells that are objects": (table(y=[{"a": 1}] * 24), "column 'y' holds an object"),
    "the wrong columns": ({"model": "single", "data": {"a": [1], "b": [2]}}, "which is not in the table"),
    "text for numbers": (table(y=["many"] * 24), "holds text, not numbers"),
    "nothing but null": (table(y=[None] * 24), "no observed value"),
    "times that are not": (table(ds=["soon"] * 24), "no readable time"),
    "times that are null": (table(ds=[None] * 24), "no readable time"),
    "times that are numbers": (table(ds=list(range(24))), "holds numbers, in training it held dates"),
    "times that are true": (table(ds=[True] * 24), ""),
    "times before all calendars": (table(ds=["0000-00-00"] * 24), ""),
    "times after all calendars": (table(ds=[f"99999-01-{d:02d}" for d in range(1, 25)]), ""),
    "times in the year 999999": (table(ds=[f"999999-12-31 {h:02d}:00" for h in range(24)]), ""),
    "times with a zone": (table(ds=[f"{hour}+02:00" for hour in HOURS]), "in training it had no zone"),
    "times that repeat": (table(ds=HOURS[:1] * 24), "repeats a time"),
    "times that differ by microseconds": (table(ds=[f"2024-02-01 00:00:00.{i:06d}" for i in range(24)]), ""),
    "times ages apart": (table(ds=[f"{1700 + 10 * i}-01-01" for i in range(24)]), "would be filled with"),
    "huge numbers": (table(y=[1e308, -1e308] * 12), ""),
    "whole numbers without end": (table(y=[10**400] * 24), ""),
    "numbers that are too long": (raw(b"9" * 6000), ""),
    "nan": (raw(b"NaN"), "not JSON"),
    "infinity": (raw(b"Infinity"), "not JSON"),
    "a number beyond all": (raw(b"1e999"), ""),
    "a level beyond all": (b'{"model": "single", "level": 1e999}', ""),
    "JSON that is deep": (b"[" * 100_000, "not JSON"),
    "objects that are deep": (b'{"data":' * 50_000, "not JSON"),
    "JSON that is cut short": (b'{"model": "sin', "not JSON"),
    "bytes that are not UTF-8": (b'{"model": "\xff\xfe"}', "not JSON"),
    "half a character": (b'{"model": "\\ud800"}', ""),
    "UTF-16": ('{"model": "single"}'.encode("utf-16"), "not JSON"),
    "an id that is missing": (many(unique_id=[None, "a"]), "is missing in 1 row"),
    "no future": (many(), "future is missing"),
    "a future that is short": (
        {"model": "panel", "future": {"unique_id": ["a"], "ds": ["2024-03-01"], "promotion": [1]}}, "future holds",
    ),
    "a static column that moves": (many(place=["sea", "hill"]), "static column 'place' changes"),
}  # fmt: skip
NAMES = ("../single", "single/", "/etc/passwd", "..", "single\x00", "SINGLE", "", "%2e%2e", "é" * 5000, "*")
TABLES = {
    "one column": (b"ds;y\n2024-02-01;1\n", "must be separated by commas"),
    "names alone": (b"ds,y\n", "holds no rows"),
    "latin-1": "ds,y\n2024-02-01,é\n".encode("latin-1"),
    "binary": (bytes(range(256)) * 20, ""),
    "an open quote": (b'ds,y\n"2024-02-01,1\n', ""),
    "more cells than names": (b"ds,y\n2024-02-01,1,2,3\n2024-02-02,1,2,3\n", ""),
    "zip": (b"PK\x03\x04" + b"\x00" * 100, ""),
    "gzip": (b"\x1f\x8b\x08\x00" + b"\x00" * 100, ""),
    "infinity": (b"ds,y\n2024-02-01,inf\n", "infinite"),
    "commas alone": (b",,,\n,,,\n", ""),
    "a formula": (b"ds,y\n=1+1,2\n", "no readable time"),
}


def check(client, reply, message: str = "") -> None:
    assert 400 <= reply.status_code < 500, (reply.status_code, reply.text)
    told = reply.json()["error"]
    assert told
    assert message in told, told
    assert len(told) < 2100
    assert "Traceback" not in told
    assert client.get("/health").json()["status"] == "ok"


@pytest.mark.parametrize("case", BODIES)
@pytest.mark.parametrize("path", ["/v1/forecast", "/v1/observe"])
def test_bodies(client, case, path):
    body, message = BODIES[case]
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    check(client, client.post(path, content=content, headers=JSON), message if path == "/v1/forecast" else "")


@pytest.mark.parametrize("name", NAMES)
def test_names_of_models_are_names_and_not_paths(client, name):
    reply = client.post("/v1/forecast", json={"model": name})
    check(client, reply, "there is no such model")
    assert reply.status_code == 404


@pytest.mark.parametrize("case", TABLES)
def test_csv(client, case):
    body, message = TABLES[case] if isinstance(TABLES[case], tuple) else (TABLES[case], "UTF-8")
    check(client, client.post("/v1/forecast?model=single", content=body, headers=CSV), message)


@pytest.mark.parametrize(("query", "message"), [
    ("level=wide", "level"), ("level=80,,nan", ""), ("model=single&model=panel", "twice"),
    ("format=xml", "format='xml'"),
    ("paths=many", "paths"), ("data=1", "no setting 'data'"), ("a=b", "no setting 'a'"), ("abstain=1e400", "abstain"),
    ("%ff=%fe", ""), ("model=", "no such model"),
])  # fmt: skip
def test_queries(client, query, message):
    query = query if "model" in query else f"model=single&{query}"
    check(client, client.post(f"/v1/forecast?{query}", content=b"", headers=CSV), message)


def test_an_option_in_two_places(client):
    check(client, client.post("/v1/forecast?model=single", json={"model": "single"}), "give it once")


@pytest.mark.parametrize(("headers", "status"), [
    ({"content-type": "text/plain"}, 415), ({"content-type": "multipart/form-data; boundary=x"}, 415),
    ({"content-type": "application/x-www-form-urlencoded"}, 415), ({}, 415),
    ({"content-type": "text/csv; charset=latin-1"}, 415), (JSON | {"content-encoding": "gzip"}, 415),
    (JSON | {"accept": "image/png"}, 406), (JSON | {"accept": "text/html;q=1"}, 406),
])  # fmt: skip
def test_headers(client, headers, status):
    reply = client.post("/v1/forecast", content=b'{"model": "single"}', headers=headers)
    check(client, reply)
    assert reply.status_code == status


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/v1/forecast", 405), ("DELETE", "/v1/models", 405), ("POST", "/health", 405), ("GET", "/v1", 404),
    ("GET", "/web/../serve/app.py", 404), ("GET", "/web/..%2fserve%2fapp.py", 404), ("GET", "/web/report.html", 404),
    ("GET", "/web/%2e%2e/%2e%2e/pyproject.toml", 404), ("GET", "/v1/models/", 404), ("PUT", "/", 405),
])  # fmt: skip
def test_paths_and_methods(client, method, path, status):
    reply = client.request(method, path)
    assert reply.status_code == status
    check(client, reply)


def test_a_model_that_does_not_learn_says_so(client):
    reply = client.post("/v1/observe", json={"model": "single", "data": GOOD})
    check(client, reply, "does not learn from outcomes")
    assert reply.status_code == 409
