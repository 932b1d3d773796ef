"""Servers for tests: the real application in a thread, and the real command in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pandas as pd
import uvicorn

from itocast.serve.app import build
from itocast.serve.limits import Limits
from itocast.serve.registry import Registry
from itocast.serve.server import Server


@contextmanager
def running(*folders: Path, limits: Limits = Limits(), token: str | None = None, every: float = 0.05):
    """A client of the application, which runs in a thread."""
    bound = socket.create_server(("127.0.0.1", 0))
    server = Server(
        uvicorn.Config(build(Registry(list(folders)), limits, token, every), log_config=None, access_log=False)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=120) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


class Process:
    """`itocast serve` as a user starts it."""

    def __init__(self, *arguments: object, **environment: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "itocast", "serve", *map(str, arguments), "--port", "0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=os.environ | environment,
        )  # fmt: skip
        self.lines: list[str] = []
        self.url = self._until(r"serving at (\S+)")

    def _until(self, pattern: str) -> str:
        for line in self.child.stderr:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError("".join(self.lines))

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Tell it to stop; its exit code and all that it said."""
        self.child.send_signal(number)
        rest = self.child.communicate(timeout=120)[1]
        return self.child.returncode, "".join(self.lines) + rest


@contextmanager
def process(*arguments: object, **environment: str):
    """A server that is ended in any case."""
    server = Process(*arguments, **environment)
    try:
        yield server
    finally:
        if server.child.poll() is None:
            server.child.kill()
            server.child.communicate()


def columns_of(frame: pd.DataFrame) -> dict[str, list]:
    """A frame as the columns of a request; times as text."""
    text = {name: frame[name].dt.strftime("%Y-%m-%d %H:%M:%S") for name in frame if frame[name].dtype.kind == "M"}
    return {name: frame.assign(**text)[name].tolist() for name in frame}


def records_of(frame: pd.DataFrame) -> list[dict]:
    """What a forecast of the library must read in an answer, to the last digit."""
    shown = {name: [time.isoformat() for time in frame[name]] for name in frame if frame[name].dtype.kind == "M"}
    columns = {name: shown.get(name, frame[name].tolist()) for name in frame}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
