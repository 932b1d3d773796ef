"""A server under load: many clients that each send one table after another, against one client alone.

    python benchmarks/serve.py

Every answer is compared with the library's, digit by digit. Client and server share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import torch

from itocast import Forecaster, datasets
from itocast.storage import write_bytes

ROWS = 72  # of a table that is sent
TABLES = 256
RESULT = Path(__file__).parent / "results" / "serve.md"


@dataclass
class Load:
    """What came of some clients."""

    seconds: float = 0.0
    failed: int = 0
    wrong: int = 0
    times: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return len(self.times) / self.seconds

    def milliseconds(self, share: float) -> float:
        return 1000 * float(np.quantile(self.times, share))


def fit(folder: Path, horizon: int) -> tuple[Path, list[tuple[bytes, Any]]]:
    """A default model of the newest Metro rows, and requests with what the library answers."""
    metro = datasets.load("metro").tail(6000)[["date_time", "traffic_volume"]]
    forecaster = Forecaster(horizon, effort="fast", support="positive", data={"repeated": "last"})
    forecaster.fit(metro, target="traffic_volume", time="date_time")
    forecaster.save(folder)
    hourly = metro.drop_duplicates("date_time", keep="last")
    starts = np.linspace(0, len(hourly) - ROWS, TABLES).astype(int)
    out = []
    for start in starts:
        part = hourly.iloc[start : start + ROWS]
        columns = {
            name: part[name].astype(str).tolist() if name == "date_time" else part[name].tolist() for name in part
        }
        body = json.dumps({"data": columns}).encode()
        told = forecaster.predict(pd.DataFrame(columns))
        rows = told.assign(date_time=[time.isoformat() for time in told["date_time"]]).to_dict("records")
        head = ("POST /v1/forecast HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        lines = "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""])
        out.append((lines.encode() + body, rows))
    return folder, out


async def client(address: tuple[str, int], asks: list[tuple[bytes, Any]], first: int, until: float, load: Load) -> None:
    """Send one request after another on one connection."""
    reader, writer = await asyncio.open_connection(*address)
    place = first
    while time.perf_counter() < until:
        request, expected = asks[place % len(asks)]
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = await reader.readexactly(int(length[1]) if length else 0)
        load.times.append(time.perf_counter() - began)
        if not head.startswith(b"HTTP/1.1 200"):
            load.failed += 1
        elif json.loads(body)["forecast"] != expected:
            load.wrong += 1
        place += 7
    writer.close()


async def press(address: tuple[str, int], asks: list[tuple[bytes, Any]], clients: int, seconds: float) -> Load:
    """So many clients for so long."""
    load, began = Load(), time.perf_counter()
    await asyncio.gather(*(client(address, asks, 11 * i, began + seconds, load) for i in range(clients)))
    load.seconds = time.perf_counter() - began
    return load


def resident(pid: int) -> float:
    """Megabytes of memory that a process holds."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def measure(horizon: int, clients: int, seconds: float) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        model, asks = fit(Path(folder) / "model", horizon)
        server = subprocess.Popen(
            [sys.executable, "-m", "itocast", "serve", str(model), "--port", "0"], stderr=subprocess.PIPE, text=True
        )
        assert server.stderr is not None
        url = next(found[1] for line in server.stderr if (found := re.search(r"serving at (\S+)", line)))
        parts = urlsplit(url)
        address = (str(parts.hostname), int(parts.port or 0))
        asyncio.run(press(address, asks, clients, min(10.0, seconds)))  # what is needed once is there
        alone = [asyncio.run(press(address, asks, 1, seconds / 4))]
        before = resident(server.pid)
        many = asyncio.run(press(address, asks, clients, seconds))
        after = resident(server.pid)
        alone.append(asyncio.run(press(address, asks, 1, seconds / 4)))
        server.send_signal(signal.SIGTERM)
        server.communicate()
    one = Load(sum(a.seconds for a in alone), times=[t for a in alone for t in a.times])
    failed, wrong = (sum(getattr(load, name) for load in (*alone, many)) for name in ("failed", "wrong"))
    cells = [
        str(horizon), f"{one.rate:.1f}", f"{one.milliseconds(0.5):.0f}", f"{many.rate:.1f}",
        f"{many.milliseconds(0.5):.0f}", f"{many.milliseconds(0.99):.0f}", f"{many.rate / one.rate:.1f}",
        f"{len(one.times) + len(many.times):,}",
        str(failed), str(wrong), f"{before:.0f}", f"{after:.0f}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--horizons", default="1", help="steps ahead of each model, with commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    many = f"{options.clients} clients"
    names = (
        "steps ahead", "one client: requests/s", "median (ms)", f"{many}: requests/s", "median (ms)", "99 % (ms)",
        "times one client", "answers", "failed", "wrong", "memory before (MB)", "after (MB)",
    )  # fmt: skip
    lines = [
        f"# The server under load: {many} for {options.seconds:g} s",
        "",
        "`python benchmarks/serve.py`: the default model of Metro on one thread; each request brings a table of",
        f"{ROWS} rows, one of {TABLES}, and asks for 80 and 95 % intervals. Clients share the machine with the server.",
        "Wrong answers are those that differ from the library's in any digit.",
        "",
        f"| {' | '.join(names)} |",
        "|---:" * len(names) + "|",
    ]
    for horizon in map(int, options.horizons.split(",")):
        lines.append(measure(horizon, options.clients, options.seconds))
        print(lines[-1], flush=True)
        write_bytes(RESULT, ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
