"""A small network that forecasts without being fitted: it was trained on synthetic series alone."""

from itocast.prior.prior import Prior

__all__ = ["Prior"]
