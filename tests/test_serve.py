"""The server against the library: the same numbers to the last digit, alone and together, and all around them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest
from conftest import BUILD, ahead_frame, panel_frame, tiny, wave
from serving import columns_of, records_of, running

from itocast import Forecaster, training
from itocast.calibration import CALIBRATORS
from itocast.data.preparation import Preparation
from itocast.forecast import Forecast
from itocast.serve import together
from itocast.serve.asked import Asked, Options, frame_of
from itocast.serve.batching import Batcher
from itocast.serve.limits import Limits, Refused
from itocast.serve.registry import Registry
from itocast.serve.work import Request, Work

TOKEN = "a-token-of-many-letters"
RECURRENT = ("lstm", "gru", "paper", "deep_gp")  # whose rows are not joined


@pytest.fixture(scope="module")
def folder(tmp_path_factory, single, panel, wave_forecaster):
    folder = tmp_path_factory.mktemp("models")
    for name, forecaster in (("single", single[1]), ("panel", panel[1]), ("wave", wave_forecaster)):
        forecaster.save(folder / name)
    return folder


@pytest.fixture(scope="module")
def client(folder):
    with running(folder / "single", folder / "panel", folder / "wave") as client:
        yield client


def forecast(client, **body):
    reply = client.post("/v1/forecast", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_json_in_and_out_equals_the_library(client, single):
    frame, forecaster = single
    told = forecast(client, model="single", data=columns_of(frame), level=[50, 90], quantiles=[0.1])
    assert told["forecast"] == records_of(forecaster.predict(frame, [50, 90], [0.1]))
    assert told["model"] == "single"
    rows = frame.assign(ds=frame["ds"].astype(str)).to_dict("records")
    assert forecast(client, model="single", data=rows, level=90)["forecast"] == records_of(
        forecaster.predict(frame, 90)
    )


def test_the_example_of_the_document_runs(folder):
    text = (Path(__file__).parent.parent / "docs" / "serve.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    with running(folder / "single") as client:
        names: dict = {}
        exec(example.replace("http://127.0.0.1:8000", str(client.base_url).rstrip("/")), names)
    told = names["answer"]["forecast"]
    shown = re.search(r"# (\{.*\})", example)[1]
    assert list(told[0]) == re.findall(r'"([^"]+)":', shown)
    assert told[0]["ds"] == "2024-01-14T15:00:00"


def test_without_data_it_goes_on_from_the_rows_it_knows(client, single):
    assert forecast(client, model="single")["forecast"] == records_of(single[1].predict())


def test_csv_in_and_out_is_what_predict_writes(client, panel, tmp_path, run, folder):
    frame, _ = panel
    whole = pd.concat([frame, ahead_frame(frame)], ignore_index=True)
    whole["place"] = whole.groupby("unique_id")["place"].ffill()
    whole.to_csv(tmp_path / "table.csv", index=False)
    told = client.post(
        "/v1/forecast", params={"model": "panel", "level": "80", "quantiles": "0.1,0.9"},
        content=(tmp_path / "table.csv").read_bytes(), headers={"content-type": "text/csv", "accept": "text/csv"},
    )  # fmt: skip
    assert told.headers["content-type"] == "text/csv; charset=utf-8"
    ran = run("predict", folder / "panel", tmp_path / "table.csv", "--level", "80", "--quantiles", "0.1,0.9")
    assert told.text == ran.out


def test_future_paths_and_abstention(client, panel):
    frame, forecaster = panel
    ahead = ahead_frame(frame, value=1.0)
    asked = {"model": "panel", "data": columns_of(frame), "future": columns_of(ahead)}
    assert forecast(client, **asked)["forecast"] == records_of(forecaster.predict(frame, future=ahead))
    paths = forecast(client, **asked, paths=5)["forecast"]
    assert paths == records_of(forecaster.predict(frame, paths=5, future=ahead))
    marked = forecast(client, **asked, abstain=0.3)["forecast"]
    assert marked == records_of(forecaster.predict(frame, future=ahead, abstain=0.3))


def test_a_warning_of_the_library_is_told(client, single):
    told = forecast(client, model="single", level=99.9)["warnings"]
    assert len(told) == 1
    assert "intervals of 99.9 % need at least 999" in told[0]


def tables(frame: pd.DataFrame, count: int) -> list[pd.DataFrame]:
    """Parts of a table of different lengths and ends."""
    return [frame.iloc[7 * i : 7 * i + 5 + 3 * (i % 9)] for i in range(count)]


@pytest.mark.parametrize("calibration", [None, *CALIBRATORS])
def test_requests_that_are_answered_together_have_the_digits_of_each_alone(calibration, wave_forecaster, single):
    frame, _ = single
    forecaster = tiny(calibration=calibration, support="positive").fit(frame)
    options = Options(level=[50, 95], quantiles=[0.3])
    asked = [Asked(options, columns_of(part)) for part in tables(frame, 20)]
    parts = [together.part_of(forecaster, one) for one in asked]
    assert None not in parts
    for one, told in zip(asked, together.forecast(forecaster, parts, options), strict=True):
        alone = forecaster.predict(frame_of(one.data), options.level, options.quantiles)
        pd.testing.assert_frame_equal(told.reset_index(drop=True), alone, check_exact=True)


def test_series_of_the_same_name_in_different_requests_are_kept_apart():
    frame = panel_frame().drop(columns="promotion")
    forecaster = tiny(calibration_by="series").fit(frame, past=["heat"], static=["place"])
    names = ({}, {"a": "new"}, {"b": "new", "a": "b"}, {"c": "a", "a": "c"})
    requests = [frame.groupby("unique_id").tail(9 + 4 * i).replace({"unique_id": new}) for i, new in enumerate(names)]
    asked = [Asked(Options(), columns_of(part)) for part in requests]
    told = together.forecast(forecaster, [together.part_of(forecaster, one) for one in asked], Options())
    strange = (nullcontext(), nullcontext(), *(pytest.warns(UserWarning, match=f"{n} of 3 series") for n in (1, 2)))
    for one, part, warned in zip(told, requests, strange, strict=True):
        with warned:  # a known name at the level of another series
            alone = forecaster.predict(part)
        pd.testing.assert_frame_equal(one.reset_index(drop=True), alone, check_exact=True)


@pytest.mark.parametrize("name", [name for name in BUILD if not any(word in name for word in RECURRENT)])
def test_a_row_has_the_same_law_in_every_batch(name):
    table = wave()
    rows = Preparation.fit(table, horizon=3, window=4).windows(table).thin(41)
    model = BUILD[name](rows.sizes)
    model.prepare(rows)
    whole = training.predict(model, rows)
    for size in (1, 3, 16):
        parts = Forecast.cat([training.predict(model, part) for part in rows.chunks(size)])
        for field in ("means", "log_variances", "log_weights"):
            assert (getattr(parts, field) == getattr(whole, field)).all(), (size, field)


@pytest.mark.parametrize("change", [
    {"ds": ["31.12.2024", "30.12.2024"]}, {"ds": ["2024-02-30", "2024-02-29"]}, {"ds": [1, 2]},
    {"y": ["1", "2"]}, {"y": [True, False]}, {"y": [10**400, 1]}, {"ds": ["2024-01-01T00:00Z", "2024-01-02T00:00Z"]},
])  # fmt: skip
def test_what_may_be_read_otherwise_in_company_is_not_joined(single, change):
    data = {"ds": ["2024-01-01 00:00", "2024-01-01 01:00"], "y": [1.0, None]}
    assert together.part_of(single[1], Asked(Options(), data)) is not None
    assert together.part_of(single[1], Asked(Options(), data | change)) is None


def test_a_bad_request_does_not_spoil_those_it_came_with(folder, single):
    frame, forecaster = single
    batches: list[int] = []
    work = Work(Registry([folder / "single"]), Limits(), batches.append)
    good = [json.dumps({"data": columns_of(part)}).encode() for part in tables(frame, 7)]
    bad = json.dumps({"data": {"ds": ["2024-01-01", "2024-01-01"], "y": [1, 2]}}).encode()
    told = work.answer([Request(body, "application/json", {}, "json") for body in [*good[:3], bad, *good[3:]]])
    assert told[3].status == 422
    assert "repeats a time" in told[3].message
    answers = [json.loads(one)["forecast"] for i, one in enumerate(told) if i != 3]
    assert answers == [records_of(forecaster.predict(part)) for part in tables(frame, 7)]
    assert max(batches) > 1
    assert sum(batches) == 7


def test_many_clients_at_once_get_the_answers_of_one(client, single):
    frame, forecaster = single
    parts = tables(frame, 24)
    with ThreadPoolExecutor(12) as pool:
        told = list(pool.map(lambda part: forecast(client, model="single", data=columns_of(part))["forecast"], parts))
    assert told == [records_of(forecaster.predict(part)) for part in parts]


def test_models_are_described(client, panel):
    told = {one["name"]: one for one in client.get("/v1/models").json()["models"]}
    assert list(told) == ["single", "panel", "wave"]
    one = told["panel"]
    assert one["columns"] == {
        "id": "unique_id", "time": "ds", "targets": ["y"], "past": ["heat"], "future": ["promotion"],
        "static": ["place"],
    }  # fmt: skip
    assert (one["horizon"], one["window"], one["freq"], one["series"], one["fault"]) == (3, 4, "h", 3, None)
    assert one["calibration"] == panel[1].fitted.calibration


def test_the_document_of_the_interface_and_no_page_that_needs_another_host(client):
    document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {"/health", "/metrics", "/v1/models", "/v1/forecast", "/v1/observe"}
    assert "security" not in document
    for name in (
        "",
        "docs",
        "web/docs.js",
        "web/serve.js",
        "web/charts.js",
        "web/csv.js",
        "web/page.css",
        "web/serve.css",
    ):
        text = client.get(f"/{name}")
        assert text.status_code == 200
        assert "https://" not in text.text.replace("https://www.w3.org", "")


def test_metrics_count_requests_and_batches(client):
    forecast(client, model="single")
    text = client.get("/metrics").text
    assert 'itocast_requests_total{path="/v1/forecast",status="200"}' in text
    assert "itocast_batch_requests_count" in text
    assert "itocast_models 3.0" in text
    client.get("/some/path/of/ours")
    assert "some/path" not in client.get("/metrics").text


def test_observe_does_what_the_command_does(tmp_path, single, run):
    frame, _ = single
    tiny(1, calibration="adaptive").fit(frame.iloc[:250]).save(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "twin")
    new = frame.iloc[250:]
    with running(tmp_path / "model") as client:
        before = client.get("/v1/models").json()["models"][0]
        told = client.post("/v1/observe", json={"data": columns_of(new)}).json()
        after = client.get("/v1/models").json()["models"][0]
        served = forecast(client)["forecast"]
    new.to_csv(tmp_path / "new.csv", index=False)
    ran = run("observe", tmp_path / "twin", tmp_path / "new.csv")
    assert f"{told['learned']:,} forecasts" in ran.out
    assert told["learned"] == 50
    assert (before["version"], before["until"]) != (after["version"], after["until"])
    assert after["version"] == told["version"]
    twin = Forecaster.load(tmp_path / "twin").predict()
    assert served == records_of(Forecaster.load(tmp_path / "model").predict()) == records_of(twin)


def test_observations_at_once_are_taken_one_after_another(tmp_path, single):
    frame, _ = single
    tiny(1, calibration="adaptive").fit(frame.iloc[:200]).save(tmp_path / "model")
    parts = [columns_of(frame.iloc[200 + 10 * i : 210 + 10 * i]) for i in range(8)]
    with running(tmp_path / "model") as client:
        for first in (0, 4):  # within each half in any order
            with ThreadPoolExecutor(4) as pool:
                told = list(
                    pool.map(lambda part: client.post("/v1/observe", json={"data": part}), parts[first : first + 4])
                )
            assert [one.status_code for one in told] == [200] * 4
        assert client.get("/v1/models").json()["models"][0]["until"] == str(frame["ds"].iloc[279])
    assert str(Forecaster.load(tmp_path / "model").predict()["ds"].iloc[0]) == str(frame["ds"].iloc[280])


def test_a_token_is_needed_where_there_is_one(folder):
    with running(folder / "single", token=TOKEN) as client:
        for path in ("/v1/models", "/metrics", "/nothing"):
            assert client.get(path).status_code == 401
        for header in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"):
            reply = client.get("/v1/models", headers={"authorization": header.encode()})
            assert reply.status_code == 401
            assert "token is missing or wrong" in reply.json()["error"]
            assert reply.headers["www-authenticate"] == "Bearer"
        assert client.get("/v1/models", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/health").json() == {"status": "ok", "models": 1}
        assert client.get("/").status_code == client.get("/docs").status_code == 200
        assert client.get("/openapi.json").json()["security"] == [{"token": []}]


def test_pages_of_other_hosts_are_kept_out(client):
    for host in ("evil.example", "evil.example:8000", "", "localhost.evil.example"):
        assert client.get("/v1/models", headers={"host": host}).status_code in (400, 403)
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
        assert client.get("/health", headers={"host": host}).status_code == 200
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(("limits", "body", "status", "message"), [
    ({"body": 100}, {"level": [80] * 90}, 413, "more than the 100 that this server takes"),
    ({"rows": 2}, {"data": {"ds": ["2024-01-01"] * 3, "y": [1, 2, 3]}}, 422, "rows: 3 are more than the 2"),
    ({"levels": 2}, {"level": [1, 2], "quantiles": [0.5]}, 422, "level and quantiles: 3 are more than the 2"),
    ({"forecasts": 8}, {"paths": 3}, 422, "forecasts: 9 are more than the 8"),
])  # fmt: skip
def test_work_is_bounded(folder, limits, body, status, message):
    with running(folder / "single", limits=Limits(**limits)) as client:
        reply = client.post("/v1/forecast", json=body)
        assert (reply.status_code, message in reply.json()["error"]) == (status, True), reply.text
        assert client.get("/health").status_code == 200


def test_an_answer_that_takes_too_long_is_not_waited_for():
    release, asked = threading.Event(), []

    def work(batch: list[str]) -> list[str]:
        asked.append(batch)
        release.wait()
        return [word.upper() for word in batch]

    async def run() -> tuple[Refused, str]:
        batcher: Batcher[str, str] = Batcher(work, Limits(seconds=1))
        batcher.start()
        with pytest.raises(Refused) as slow:
            await batcher.ask("first")
        release.set()
        answer = await batcher.ask("second")
        await batcher.stop()
        return slow.value, answer

    slow, answer = asyncio.run(run())
    assert slow.status == 504
    assert slow.message == "no answer within 1 s: send fewer rows, or try again later"
    assert answer == "SECOND"
    assert asked == [["first"], ["second"]]


def test_a_body_without_a_length_is_bounded_too(folder):
    with running(folder / "single", limits=Limits(body=1000)) as client:
        reply = client.post(
            "/v1/forecast", content=(b" " * 500 for _ in range(9)), headers={"content-type": "text/csv"}
        )
        assert reply.status_code == 413


def test_too_many_that_wait_are_told_to_come_back(folder):
    with running(folder / "single", limits=Limits(waiting=1)) as client, ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: client.post("/v1/forecast", json={"paths": 20_000}), range(16)))
    statuses = {reply.status_code for reply in replies}
    assert statuses == {200, 503}
    assert {reply.headers["retry-after"] for reply in replies if reply.status_code == 503} == {"1"}


def test_a_changed_folder_is_read_again_and_a_broken_one_is_not(tmp_path, single):
    frame, forecaster = single
    forecaster.save(tmp_path / "model")
    other = tiny(horizon=2).fit(frame)

    def until(client, key, value):
        for _ in range(400):
            told = client.get("/v1/models").json()["models"][0]
            if told[key] == value:
                return told
        raise AssertionError(told)

    with running(tmp_path / "model") as client:
        first = until(client, "horizon", 3)
        other.save(tmp_path / "model")
        second = until(client, "horizon", 2)
        assert second["version"] != first["version"]
        assert forecast(client)["forecast"] == records_of(other.predict())
        (tmp_path / "model" / "manifest.json").write_text("{")
        for _ in range(400):
            if client.get("/health").json()["status"] == "degraded":
                break
        told = client.get("/v1/models").json()["models"][0]
        assert "is cut short or damaged" in told["fault"]
        assert told["version"] == second["version"]
        assert forecast(client)["forecast"] == records_of(other.predict())
        forecaster.save(tmp_path / "whole")
        (tmp_path / "model").rename(tmp_path / "away")
        (tmp_path / "whole").rename(tmp_path / "model")
        assert until(client, "horizon", 3)["fault"] is None
        assert client.get("/health").json()["status"] == "ok"
        assert forecast(client)["forecast"] == records_of(forecaster.predict())
