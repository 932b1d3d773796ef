"""The page: figures, charts and styles in one file that needs no network."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from itocast.storage import write_bytes

MOST = 5_000_000  # bytes of a page


def check_name(path: str | Path) -> None:
    """Refuse a name that cannot be written, before the work and not after it."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"report={str(path)!r}: expected a name that ends with .html")
    if path.is_dir():
        raise ValueError(f"report={str(path)!r} is a folder: name a file in it")


def render(figures: dict[str, Any]) -> str:
    """The figures as a page; what comes from data reaches it as JSON that cannot end its script, or escaped."""
    parts = {
        "title": html.escape(figures["title"]),
        "headline": html.escape(figures["headline"]),
        "styles": _asset("uPlot.min.css") + _asset("page.css"),
        "licence": _asset("uPlot.LICENSE").strip(),
        "uplot": _asset("uPlot.iife.min.js"),
        "charts": _asset("charts.js"),
        "report": _asset("report.js"),
        "figures": embed(figures),
    }
    text = _asset("report.html")
    pieces = text.split("{{")
    out = [pieces[0]]
    for piece in pieces[1:]:  # one pass: what is put in is not looked at again
        name, rest = piece.split("}}", 1)
        out += [parts[name.strip()], rest]
    return "".join(out)


def embed(value: Any) -> str:
    """JSON that can stand inside a script element.

    >>> embed({"name": "</script><b>"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def write(path: str | Path, figures: dict[str, Any]) -> Path:
    """Write the page beside an older one and rename it; charts of every other series are left out until it is small."""
    check_name(path)
    path, content = Path(path), render(figures).encode()
    while len(content) > MOST and len(figures["lines"]["lines"]) > 1:
        lines = figures["lines"]
        figures = figures | {"lines": lines | {"lines": lines["lines"][::2]}}
        content = render(figures).encode()
    write_bytes(path, content)
    return path


def _asset(name: str) -> str:
    return (files("itocast") / "web" / name).read_text(encoding="utf-8")
