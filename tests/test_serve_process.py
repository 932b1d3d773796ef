"""`itocast serve` as a process: it stops after what it began, answers while it works, and refuses what is not safe."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest
from serving import columns_of, process, records_of


@pytest.fixture(scope="module")
def model(tmp_path_factory, single):
    folder = tmp_path_factory.mktemp("process") / "model"
    single[1].save(folder)
    return folder


def _waiting(url: str) -> int:
    """How many requests wait, as the server counts them."""
    lines = httpx.get(f"{url}/metrics", timeout=300).text.splitlines()
    return int(float(next(line.split()[1] for line in lines if line.startswith("itocast_waiting_requests "))))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_finishes_what_it_began_and_answers_health_meanwhile(model, single, number):
    frame, forecaster = single
    with process(model) as server:
        heavy: list[httpx.Response] = []
        replies: list[httpx.Response] = []

        def send(answers: list[httpx.Response], body: dict) -> threading.Thread:
            return threading.Thread(
                target=lambda: answers.append(httpx.post(f"{server.url}/v1/forecast", json=body, timeout=300))
            )

        work = send(heavy, {"data": columns_of(frame), "paths": 8_000})
        others = [send(replies, {"data": columns_of(frame.iloc[i : i + 30])}) for i in range(6)]
        work.start()
        time.sleep(0.3)  # it works on the large request now
        asked = 0
        for thread in others:
            thread.start()
        while not asked or _waiting(server.url) + len(replies) < len(others):  # until all have come
            assert httpx.get(f"{server.url}/health", timeout=300).json()["status"] == "ok"
            asked += 1
        code, said = server.stop(number)
        for thread in (work, *others):
            thread.join()
        assert asked
    assert code == 0
    assert "stopped" in said
    assert "Traceback" not in said
    assert heavy[0].status_code == 200
    assert len(heavy[0].json()["forecast"]) == 24_000
    told = sorted(str(reply.json()["forecast"]) for reply in replies)
    assert told == sorted(str(records_of(forecaster.predict(frame.iloc[i : i + 30]))) for i in range(6))


def test_the_log_tells_what_is_served_and_what_cannot_be_read(model, tmp_path, single):
    single[1].save(tmp_path / "model")
    with process(tmp_path / "model", ITOCAST_TOKEN="a-token-of-many-letters") as server:
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        (tmp_path / "model" / "manifest.json").write_text("{")
        while httpx.get(f"{server.url}/health").json()["status"] == "ok":
            time.sleep(0.05)
        code, said = server.stop()
    assert code == 0
    assert "model: version" in said
    assert "the new model cannot be read" in said
    assert "cut short or damaged" in said


@pytest.mark.parametrize(("arguments", "message"), [
    (["--host", "0.0.0.0"], "host='0.0.0.0' can be reached from elsewhere, which needs a token"),
    (["--host", "::"], "needs a token"),
    (["--token-file", "none"], "none: No such file or directory"),
    (["--token-file", "short"], "expected one word of at least 16 ASCII characters"),
    (["--host", "203.0.113.7", "--token-file", "token"], "choose another --port or --host"),
    (["elsewhere"], "there is no such folder"),
])  # fmt: skip
def test_what_is_not_safe_or_not_there_is_refused(run, model, tmp_path, arguments, message):
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "token").write_text("a-token-of-many-letters\n")
    ran = run("serve", model, "--port", "0", *arguments)
    assert ran.code == 1
    assert message in ran.error
    assert "Traceback" not in ran.error


def test_two_models_of_one_name_are_refused(run, model, tmp_path, single):
    single[1].save(tmp_path / "model")
    ran = run("serve", model, tmp_path / "model", "--port", "0")
    assert ran.code == 1
    assert "have the same name, 'model': rename one of the folders" in ran.error


def test_a_port_that_is_taken(run, model):
    with process(model) as server:
        ran = run("serve", model, "--port", server.url.rsplit(":", 1)[1])
    assert ran.code == 1
    assert "Address already in use" in ran.error
    assert "choose another --port or --host" in ran.error
