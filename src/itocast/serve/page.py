"""The page at / and its files, all from the package."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, HTTPException, Response

PAGE = "serve.html"
FILES = {
    PAGE: "text/html",
    "serve.js": "text/javascript",
    "csv.js": "text/javascript",
    "charts.js": "text/javascript",
    "uPlot.iife.min.js": "text/javascript",
    "page.css": "text/css",
    "serve.css": "text/css",
    "uPlot.min.css": "text/css",
    "uPlot.LICENSE": "text/plain",
}


def add(app: FastAPI) -> None:
    """Serve the files of itocast/web that the page needs; they are read once."""
    web = files("itocast") / "web"
    found = {name: (web / name).read_bytes() for name in FILES}

    def reply(name: str) -> Response:
        headers = {"Cache-Control": "no-cache"}
        return Response(found[name], media_type=f"{FILES[name]}; charset=utf-8", headers=headers)

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        return reply(PAGE)

    @app.get("/web/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in found:
            raise HTTPException(404)
        return reply(name)
