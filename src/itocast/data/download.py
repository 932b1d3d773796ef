"""Downloads of datasets: kept in a cache, checked, and gone on with after a cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from itocast.data.files import Published, digest

CACHE = "ITOCAST_DATA"  # the environment variable that names the cache folder
TIMEOUT = 30  # seconds without an answer


class DownloadError(OSError):
    """A file is not here and could not be downloaded."""


def cache_folder() -> Path:
    """Where downloads are kept: the folder that ITOCAST_DATA names, or the usual one for caches."""
    if os.environ.get(CACHE):
        return Path(os.environ[CACHE]).expanduser()
    import pooch

    return pooch.os_cache("itocast")


def by_hand(published: Published, name: str, data_dir: Path | None) -> str:
    """What a person can do: which file to get, where it is found, and where it belongs."""
    other = data_dir / name if data_dir else "into a folder that is named as data_dir"
    return f"get {published.name} from {published.page} and put it into {cache_folder() / name} or {other}"


def download(published: Published, name: str, data_dir: Path | None = None) -> Path:
    """Download a file into the cache, checked; one that was cut short is gone on with the next time."""
    remedy = by_hand(published, name, data_dir)
    if published.address is None:
        raise DownloadError(f"{published.name} is not here, and its page asks for a login: {remedy}")
    import pooch
    import requests

    folder, log = cache_folder() / name, pooch.get_logger()
    level = log.level
    log.setLevel("WARNING")
    try:
        path = pooch.retrieve(
            published.address, known_hash=None, fname=published.name, path=folder, downloader=_Resuming(published)
        )
    except requests.RequestException as error:
        raise DownloadError(
            f"{published.name} could not be downloaded from {published.address}: {_reason(error)}; try again later "
            f"(what has arrived is kept), or {remedy}"
        ) from error
    except PermissionError as error:
        raise DownloadError(
            f"{folder} cannot be written: set the environment variable {CACHE} to another folder"
        ) from error
    finally:
        log.setLevel(level)
    return Path(path)


class _Resuming:
    """A downloader for pooch that keeps what has arrived in a .part file in the cache, and goes on from there."""

    def __init__(self, published: Published) -> None:
        self.published = published

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        part = Path(output_file).with_name(f"{self.published.name}.part")
        if not self._is_whole(part):
            _fill(part, url, self.published.name)
        if not self._is_whole(part):
            size = part.stat().st_size
            part.unlink()
            raise DownloadError(
                f"what {url} sent ({size:,} bytes) is not the published {self.published.name}: its hash is not "
                f"{self.published.check}; it was removed. Try again; if that does not help, get the file from "
                f"{self.published.page} by hand and read it from a data folder"
            )
        os.replace(part, output_file)

    def _is_whole(self, part: Path) -> bool:
        return part.is_file() and digest(part.read_bytes(), self.published.check) == self.published.check


def _fill(part: Path, url: str, name: str) -> None:
    """Append what is still missing of a file, or all of it where the server cannot send a part."""
    import requests

    done = part.stat().st_size if part.is_file() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        if done and answer.status_code == 416:  # there is no such part: this is a piece of another file
            part.unlink()
            return _fill(part, url, name)
        answer.raise_for_status()
        if answer.status_code != 206:
            done = 0
        total = done + int(answer.headers.get("Content-Length", 0))
        with part.open("ab" if done else "wb") as file, _progress(name, total, done) as report:
            for chunk in answer.iter_content(1 << 13):
                file.write(chunk)
                report(len(chunk))
    if part.stat().st_size < total:
        raise requests.ConnectionError("the connection was cut")


def _reason(error: Exception) -> str:
    """Why a request failed, in a few words."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return f"no answer in {TIMEOUT} seconds"
    cut = isinstance(error, requests.exceptions.ChunkedEncodingError) or "cut" in str(error)
    return "the connection was cut" if cut else "no connection"


@contextmanager
def _progress(name: str, total: int, done: int) -> Iterator[Any]:
    """A bar on standard error that is shown in a terminal alone; yields what reports bytes that arrived."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=total or None, completed=done)
        yield lambda size: bar.advance(task, size)
