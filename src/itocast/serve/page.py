"""The pages at / and /docs and their files: none comes from another host."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, HTTPException, Response

PAGE, MANUAL = "serve.html", "docs.html"
FILES = {
    PAGE: "text/html",
    MANUAL: "text/html",
    "docs.js": "text/javascript",
    "serve.js": "text/javascript",
    "csv.js": "text/javascript",
    "charts.js": "text/javascript",
    "uPlot.iife.min.js": "text/javascript",
    "page.css": "text/css",
    "serve.css": "text/css",
    "uPlot.min.css": "text/css",
    "uPlot.LICENSE": "text/plain",
}
SWAGGER = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}  # as fastapi-offline brings them


def add(app: FastAPI) -> None:
    """Serve the files of itocast/web that the pages need, and those of Swagger UI; they are read once."""
    places = ((files("itocast") / "web", FILES), (files("fastapi_offline") / "static", SWAGGER))
    found = {name: ((folder / name).read_bytes(), kind) for folder, kinds in places for name, kind in kinds.items()}

    def reply(name: str) -> Response:
        content, kind = found[name]
        return Response(content, media_type=f"{kind}; charset=utf-8", headers={"Cache-Control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def start() -> Response:
        return reply(PAGE)

    @app.get("/docs", include_in_schema=False)
    async def manual() -> Response:
        return reply(MANUAL)

    @app.get("/web/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in found:
            raise HTTPException(404)
        return reply(name)
