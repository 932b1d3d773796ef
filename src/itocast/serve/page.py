"""The page at / and its files, all from the package."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Response

TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
PAGE = "serve.html"


def add(app: FastAPI) -> None:
    """Serve the files of itocast/web that a browser may ask for; they are read once."""
    found = {
        file.name: (file.read_bytes(), TYPES[file.name.rsplit(".", 1)[-1]])
        for file in (files("itocast") / "web").iterdir()
        if file.name.rsplit(".", 1)[-1] in TYPES
    }

    def reply(name: str) -> Response:
        content, kind = found[name]
        return Response(content, media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        return reply(PAGE)

    @app.get("/web/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        return reply(name) if name in found else Response(status_code=404)
