"""What every request passes: the host it names, the token it brings, and the figures that are kept of it."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from itocast.serve.limits import Refused

LOCAL = ("localhost", "127.0.0.1", "::1")
OPEN = ("/", "/docs", "/openapi.json", "/health")  # and all of /web/: need no token, and tell nothing of models
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SAFE = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; "
                                 b"object-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"),
]  # fmt: skip


class Figures:
    """What /metrics tells."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        labels = ["path", "status"]
        self.requests = Counter("itocast_requests", "Requests answered.", labels, registry=registry)
        self.seconds = Histogram(
            "itocast_request_seconds", "Time to an answer.", ["path"], buckets=BUCKETS, registry=registry
        )
        self.batches = Histogram(
            "itocast_batch_requests", "Requests answered by one call of a model.",
            buckets=(1, 2, 4, 8, 16, 32, 64), registry=registry,
        )  # fmt: skip
        self.waiting = Gauge("itocast_waiting_requests", "Requests that wait for their turn.", registry=registry)
        self.models = Gauge("itocast_models", "Models that are served.", registry=registry)
        self.faults = Gauge("itocast_model_faults", "Models whose folder cannot be read now.", registry=registry)


class Gate:
    """Stands before the application."""

    def __init__(self, app: Callable[..., Any], figures: Figures, token: str | None, paths: set[str]) -> None:
        self.app, self.figures, self.token, self.paths = app, figures, token, paths

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def reply(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = message | {"headers": [*message.get("headers", ()), *SAFE]}
            await send(message)

        try:
            self._check(scope)
        except Refused as refused:
            await respond(reply, refused)
        else:
            await self.app(scope, receive, reply)
        path = scope["path"] if scope["path"] in self.paths else "other"
        self.figures.requests.labels(path, str(status)).inc()
        self.figures.seconds.labels(path).observe(time.perf_counter() - began)

    def _check(self, scope: dict[str, Any]) -> None:
        headers = dict(scope["headers"])
        if self.token is None:  # then only this machine may ask, and no page of another host through its browser
            host = headers.get(b"host", b"").decode("latin-1").lower()
            name = host[1:].split("]")[0] if host.startswith("[") else host.rsplit(":", 1)[0]
            if name not in LOCAL:
                raise Refused(403, f"Host={host!r}: expected localhost; a server for other hosts needs a token")
            return
        if scope["path"] in OPEN or scope["path"].startswith("/web/"):
            return
        sent = headers.get(b"authorization", b"")
        scheme, _, word = sent.partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(word.strip(), self.token.encode()):
            raise Refused(
                401,
                "the token is missing or wrong: send it as Authorization: Bearer TOKEN",
                {"WWW-Authenticate": "Bearer"},
            )


async def respond(send: Any, refused: Refused) -> None:
    """A refusal as JSON."""
    body = json.dumps({"error": refused.message}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))} | refused.headers
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
