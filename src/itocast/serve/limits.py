"""How much work a request may ask for, and how it is refused."""

from __future__ import annotations

from pydantic import Field

from itocast.settings import Settings

LONGEST = 2000  # characters of a message: it may quote what was sent


class Limits(Settings):
    """The most that one request may bring or ask for."""

    body: int = Field(16_000_000, ge=1, description="bytes of a body")
    rows: int = Field(200_000, ge=1, description="rows of its tables")
    forecasts: int = Field(100_000, ge=1, description="rows of the answer: series × steps × targets × paths")
    levels: int = Field(32, ge=1, description="levels and quantiles")
    seconds: float = Field(60.0, gt=0, description="from the arrival of a request to its answer")
    waiting: int = Field(512, ge=1, description="requests that wait for their turn")


class Refused(Exception):
    """A request that gets a message instead of an answer."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.message = message if len(message) <= LONGEST else message[:LONGEST] + " …"


def check(name: str, count: int, most: int, remedy: str, status: int = 422) -> None:
    """Refuse more than there may be.

    >>> check("rows", 3, 2, "send fewer")
    Traceback (most recent call last):
    itocast.serve.limits.Refused: rows: 3 are more than the 2 that this server takes; send fewer
    """
    if count > most:
        raise Refused(status, f"{name}: {count:,} are more than the {most:,} that this server takes; {remedy}")
