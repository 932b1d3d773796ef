"""The process: binds, serves, and stops when it is told to, after what it began."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from itocast.serve.app import build
from itocast.serve.limits import Limits
from itocast.serve.registry import Registry

log = logging.getLogger("itocast.serve")
VARIABLE = "ITOCAST_TOKEN"
SHORTEST = 16  # characters of a token


class Server(uvicorn.Server):
    """Ends with the exit code 0 after SIGTERM and Ctrl-C, and says where it is."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            log.info("serving at http://%s:%s", f"[{host}]" if ":" in host else host, port)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def token_of(file: Path | None) -> str | None:
    """The token, from a file or the environment."""
    text = os.environ.get(VARIABLE) if file is None else file.read_text()
    if text is None:
        return None
    token = text.strip()
    if len(token) < SHORTEST or not token.isascii() or len(token.split()) > 1:
        source = f"token_file={str(file)!r}" if file else VARIABLE
        raise ValueError(
            f"{source}: expected one word of at least {SHORTEST} ASCII characters, such as openssl rand -hex 32 gives"
        )
    return token


def is_local(host: str) -> bool:
    """Whether only this machine can reach a host.

    >>> is_local("localhost"), is_local("127.0.0.1"), is_local("0.0.0.0"), is_local("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(folders: list[Path], host: str, port: int, token: str | None, limits: Limits) -> None:
    """Serve models until told to stop."""
    if token is None and not is_local(host):
        raise ValueError(
            f"host={host!r} can be reached from elsewhere, which needs a token: pass --token-file, or set {VARIABLE}"
        )
    registry = Registry(folders)
    bound = _bind(host, port)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    log.setLevel(logging.INFO)
    for entry in registry.entries.values():
        log.info("%s: version %s from %s", entry.name, entry.loaded.version, entry.folder)
    config: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    app: Any = build(registry, limits, token)
    Server(uvicorn.Config(app, timeout_keep_alive=30, **config)).run(sockets=[bound])
    log.info("stopped")


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ValueError(
            f"host={host!r}, port={port}: {error.strerror or error}; choose another --port or --host"
        ) from None
