"""A report of a fitted model: figures that are plain values, and one page that holds and draws them."""

from __future__ import annotations

from itocast.report.contents import figures
from itocast.report.page import check_name, render, write

__all__ = ["check_name", "figures", "render", "write"]
