"""The application: its routes, and what starts and stops with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from itocast import __version__
from itocast.serve import page, schema
from itocast.serve.answers import TYPES, form_of
from itocast.serve.asked import frame_of, read
from itocast.serve.batching import Batcher
from itocast.serve.gate import Figures, Gate
from itocast.serve.limits import Limits, Refused, check
from itocast.serve.registry import Registry
from itocast.serve.work import Request as Ask
from itocast.serve.work import Work, attempt
from itocast.storage import StorageError

log = logging.getLogger("itocast.serve")
KINDS = ("application/json", "text/csv")


def build(registry: Registry, limits: Limits = Limits(), token: str | None = None, every: float = 1.0) -> Gate:
    """The application for some models, whose folders are looked at every so many seconds."""
    figures = Figures()
    work = Work(registry, limits, figures.batches.observe)
    forecasts: Batcher[Ask, bytes] = Batcher(work.answer, limits)
    learning: Batcher[Ask, dict[str, Any]] = Batcher(lambda asks: [attempt(observe, ask) for ask in asks], limits, 1)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        forecasts.start()
        learning.start()
        watch = asyncio.create_task(_watch(registry, every))
        yield
        watch.cancel()
        await forecasts.stop()
        await learning.stop()

    app = FastAPI(
        title="itocast", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None,
        redirect_slashes=False, description="Forecasts with honest uncertainty from the models in some folders.",
    )  # fmt: skip
    app.add_exception_handler(Refused, _refusal)
    app.add_exception_handler(HTTPException, _http_refusal)
    guarded = schema.refusals(401, 403)

    @app.get("/health", summary="Whether the server is well", responses=schema.refusals(403))
    async def health() -> dict[str, Any]:
        """`ok`, or `degraded` if the folder of a model cannot be read: then its last sound version goes on."""
        return {"status": "degraded" if registry.faults else "ok", "models": len(registry.entries)}

    @app.get("/v1/models", summary="What is served", responses=guarded)
    async def models() -> dict[str, Any]:
        """For each model its columns, steps and calibration, and `fault` if its folder cannot be read now."""
        return {"models": [entry.describe() for entry in registry.entries.values()], "limits": limits.model_dump()}

    @app.post(
        "/v1/forecast", summary="Forecast the steps after a table",
        openapi_extra=schema.asking(("model", "level", "quantiles", "paths", "abstain"), ("data", "future"), True),
        responses=guarded | schema.refusals(404, 406, 408, 413, 415, 422, 503, 504)
        | schema.answer(schema.FORECAST, csv=True),
    )  # fmt: skip
    async def forecast(request: Request) -> Response:
        """As `itocast predict`. Without rows, the steps after those that the model knows."""
        query = _query(request)
        form = form_of(query.pop("format", None), request.headers.get("accept", "*/*"))
        body, kind = await _body(request, limits)
        answer = await forecasts.ask(Ask(body, kind, query, form))
        return Response(answer, media_type=TYPES[form])

    def observe(ask: Ask) -> dict[str, Any]:
        asked = read(ask.body, ask.kind, ask.query, limits, needed=True)
        entry = registry.find(asked.options.model)
        if not entry.describe()["adaptive"]:
            raise Refused(
                409, f"model {entry.name!r} does not learn from outcomes: exchange its calibration by itocast "
                "calibrate --calibration adaptive"
            )  # fmt: skip
        try:
            count = entry.observe(frame_of(asked.data))
        except StorageError as error:
            raise Refused(503, f"the model cannot be read: {error}") from None
        except OSError as error:
            raise Refused(503, f"the model cannot be read or written: {error.strerror}") from None
        return {"model": entry.name, "version": entry.loaded.version, "learned": count}

    @app.post(
        "/v1/observe", summary="Tell an adaptive calibration what happened",
        openapi_extra=schema.asking(("model",), ("data",), False),
        responses=guarded | schema.refusals(404, 408, 409, 413, 415, 422, 503, 504) | schema.answer(schema.OBSERVED),
    )  # fmt: skip
    async def observed(request: Request) -> Response:
        """As `itocast observe`: the model is written, and forecasts start after the new rows."""
        query = _query(request)
        body, kind = await _body(request, limits)
        return JSONResponse(await learning.ask(Ask(body, kind, query, "json")))

    @app.get("/metrics", summary="Figures for Prometheus", responses=guarded, response_class=Response)
    async def metrics() -> Response:
        figures.waiting.set(forecasts.waiting + learning.waiting)
        figures.models.set(len(registry.entries))
        figures.faults.set(len(registry.faults))
        return Response(generate_latest(figures.registry), media_type=CONTENT_TYPE_LATEST)

    page.add(app)
    if token is not None:
        schema.secure(app.openapi())
    paths = {"/", "/docs", "/health", "/openapi.json", "/metrics", "/v1/models", "/v1/forecast", "/v1/observe"}
    return Gate(app, figures, token, paths)


async def _watch(registry: Registry, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            await asyncio.to_thread(registry.refresh)
        except Exception:  # whatever is in a folder, the server goes on
            log.exception("the folders of the models could not be looked at")


def _query(request: Request) -> dict[str, str]:
    """The query, each name once."""
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise Refused(422, "a name stands twice in the address: give each once, several numbers with commas")
    return dict(pairs)


async def _body(request: Request, limits: Limits) -> tuple[bytes, str]:
    """The body and its kind, read no further than it may be long."""
    header = request.headers.get("content-type", "")
    kind, *settings = (part.strip().lower() for part in header.split(";"))
    charset = next((word.split("=", 1)[1].strip('"') for word in settings if word.startswith("charset=")), "utf-8")
    if kind not in KINDS or charset not in ("utf-8", "utf8", "us-ascii") or "content-encoding" in request.headers:
        raise Refused(415, f"Content-Type={header!r}: expected {' or '.join(KINDS)}, in UTF-8 and not compressed")
    told = request.headers.get("content-length", "0")
    remedy = "send the newest rows of each series, or raise --max-body"
    check("bytes of the body", int(told) if told.isdecimal() and len(told) < 20 else 0, limits.body, remedy, 413)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                check("bytes of the body", len(body), limits.body, remedy, 413)
    except TimeoutError:
        raise Refused(408, f"the body did not arrive within {limits.seconds:g} s: try again") from None
    return bytes(body), kind


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return JSONResponse({"error": error.message}, error.status, headers=error.headers)


async def _http_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = {404: "there is nothing here: see /docs", 405: "another method is expected here: see Allow"}
    return JSONResponse({"error": text.get(error.status_code, error.detail)}, error.status_code, headers=error.headers)
