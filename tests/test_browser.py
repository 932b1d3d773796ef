"""The report in a real browser, used as a person would: read, zoom, switch series, search; dark, on a phone, on paper.

Needs Debian's chromium, or another one that the variable CHROMIUM names.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import panel_frame, tiny
from playwright.sync_api import Page, sync_playwright

EVIL = "<img src=x onerror=document.title='run'></script><b>bold</b>"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "device_scale_factor": 2}


@pytest.fixture(scope="module")
def browser():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    assert path, "no chromium found: apt-get install chromium, or name one by the variable CHROMIUM"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """Twenty series, one of them with a name that would be markup."""
    parts = [panel_frame(120, seed)[["unique_id", "ds", "y"]] for seed in range(7)]
    frame = pd.concat([part.assign(unique_id=part["unique_id"] + str(i)) for i, part in enumerate(parts)])
    frame = frame[frame["unique_id"] != "c6"].replace({"unique_id": {"a0": EVIL}})
    forecaster = tiny(training={"epochs": 3}).fit(frame)
    return forecaster.report(frame, tmp_path_factory.mktemp("report") / "report.html", unit="kW")


@pytest.fixture
def show(browser, report):
    """Open the report; whatever it logs, raises or asks the network for makes the test fail."""
    contexts, faults = [], []

    def opened(path: Path = report, **options) -> Page:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: None if request.url == path.as_uri() else faults.append(request.url))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def scale(page: Page) -> tuple[float, float]:
    """The part of time that the forecast's chart shows."""
    x = page.evaluate(
        "(() => { const {min, max} = [...itocast.charts].find((c) => c.o.sync).plot.scales.x; return [min, max]; })()"
    )
    return tuple(x)


def spot(page: Page, share: float) -> tuple[float, float]:
    page.locator("#course .u-over").scroll_into_view_if_needed()
    box = page.locator("#course .u-over").bounding_box()
    return box["x"] + share * box["width"], box["y"] + box["height"] / 2


def colours(page: Page, place: str) -> set[str]:
    """The colours of a chart: one if nothing is drawn."""
    return set(page.evaluate(
        """(place) => {
            const canvas = document.querySelector(place + " canvas");
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
            copy.drawImage(canvas, 0, 0);
            const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
            const hex = (value) => "#" + [value & 255, (value >> 8) & 255, (value >> 16) & 255]
                .map((part) => part.toString(16).padStart(2, "0")).join("");
            return [...new Set(new Uint32Array(data.buffer))].map(hex);
        }""",
        place,
    ))  # fmt: skip


def test_every_section_is_there_and_drawn(show):
    page = show()
    assert page.locator("h1").inner_text().startswith("95 % intervals covered ")
    titles = page.locator("h2").all_inner_texts()
    assert titles == [
        "Forecasts and outcomes", "All series", "Scores", "Can the intervals be trusted?", "Coverage and width",
        "What the uncertainty is made of", "Worst misses", "The doctor's findings", "Training",
        "How to make this again",
    ]  # fmt: skip
    for place in ("#course", "#deviations", "#calibration", "#pit", "#by-charts", "#shares-chart", "#training-chart"):
        assert len(colours(page, place)) > 10, place
    assert page.locator("#scores-table tbody tr").first.inner_text().startswith("this model")
    assert page.locator("#misses-table tbody tr").count() == 12
    assert 'kind = "hnn"' in page.locator("#settings").inner_text()


def test_markup_in_names_is_text(show):
    page = show()
    assert page.locator("#chosen").inner_text() == EVIL
    assert page.locator("b", has_text="bold").count() == 0
    assert page.locator("img").count() == 0
    assert page.title() != "run"


def test_hovering_reads_the_forecast(show):
    page = show()
    tip = page.locator("#course .tip")
    assert not tip.is_visible()
    page.mouse.move(*spot(page, 0.4))
    words = tip.inner_text()
    for name in ("95 % interval: ", "80 % interval: ", "mean: ", "observed: ", "2024"):
        assert name in words
    page.mouse.move(*spot(page, 0.7))
    assert tip.inner_text() != words
    assert page.locator("#deviations .tip").is_visible()  # both charts share the cursor
    page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_the_legend_hides_a_line(show):
    page = show()
    button = page.locator("#course .legend button", has_text="observed")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    page.mouse.move(*spot(page, 0.4))
    assert "observed" not in page.locator("#course .tip").inner_text()


def test_zoom_by_drag_button_key_and_back(show):
    page = show()
    low, high = scale(page)
    page.mouse.move(*spot(page, 0.25))
    page.mouse.down()
    page.mouse.move(*spot(page, 0.5), steps=5)
    page.mouse.up()
    near = scale(page)
    np.testing.assert_allclose(near, (low + (high - low) / 4, low + (high - low) / 2), atol=0.02 * (high - low))
    other = page.evaluate("[...itocast.charts].filter((c) => c.o.sync).map((c) => c.plot.scales.x.min)")
    assert len(set(other)) == 1  # the chart below follows
    page.get_by_role("button", name="zoom in").first.click()
    assert np.diff(scale(page)) == pytest.approx(np.diff(near) / 2)
    page.get_by_role("button", name="later").first.click()
    assert scale(page)[0] > near[0]
    page.locator("#course .plot").focus()
    page.keyboard.press("-")
    assert np.diff(scale(page)) == pytest.approx(np.diff(near))
    page.keyboard.press("ArrowLeft")
    assert page.locator("#course .tip").is_visible()
    page.mouse.dblclick(*spot(page, 0.5))
    assert scale(page) == (low, high)


def test_search_and_switch_series(show):
    page = show()
    rows = page.locator("#series-table tbody tr")
    assert rows.count() == 12
    page.get_by_role("button", name="next page").click()
    assert rows.count() == 8
    box = page.get_by_placeholder("Search series")
    box.fill("B3")
    assert rows.count() == 1
    before = page.evaluate("[...itocast.charts].find((c) => c.o.sync).plot.data[1]")
    rows.first.click()
    assert page.locator("#chosen").inner_text() == "b3"
    assert page.evaluate("[...itocast.charts].find((c) => c.o.sync).plot.data[1]") != before
    assert page.evaluate("[...itocast.charts].filter((c) => c.o.sync).length") == 2  # the old ones are gone
    box.fill("no such series")
    assert rows.all_inner_texts() == ["Nothing matches."]
    box.fill("")
    page.get_by_role("button", name="RMSE").first.click()
    assert rows.first.inner_text().startswith("b")  # the series of the largest scale come first
    page.locator("#misses-table tbody tr").first.click()
    assert page.locator("#chosen").inner_text() == page.locator("#misses-table td.text").first.inner_text()


KINDS = {
    "days": pd.date_range("2024-01-01", periods=150, freq="D"),
    "months": pd.date_range("2010-01-01", periods=150, freq="MS"),
    "a zone": pd.date_range("2024-03-28", periods=150, freq="h", tz="Europe/Berlin"),
    "an offset": pd.date_range("2024-01-01", periods=150, freq="15min", tz="+05:30"),
    "irregular": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum(np.arange(150) % 7 + 0.25), unit="s"),
    "numbers": np.arange(150) * 5,
}


@pytest.mark.parametrize("kind", KINDS)
def test_times_of_every_kind_are_told_as_the_table_tells_them(show, tmp_path, kind):
    frame = pd.DataFrame({"ds": KINDS[kind], "y": np.random.default_rng(0).normal(size=150)})
    forecaster = tiny(2).fit(frame)
    page = show(forecaster.report(frame, tmp_path / "report.html"))
    page.locator("#course .plot").focus()
    page.keyboard.press("ArrowRight")  # the last point, which is the last step ahead
    told = page.locator("#course .tip b").inner_text()
    last = forecaster.predict(frame)["ds"].iloc[-1]
    if kind == "numbers":
        assert told == str(last)
    else:
        assert told == f"{last:%a, {last.day} %b %Y}" + ("" if kind in ("days", "months") else f", {last:%H:%M}")


def test_dark_mode_redraws_charts(show):
    page = show()
    light = page.evaluate("itocast.colour('mean')")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(200)
    assert page.evaluate("itocast.colour('mean')") != light
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background
    drawn = colours(page, "#calibration")
    assert page.evaluate("itocast.colour('mean')") in drawn
    assert light not in drawn


def test_a_phone_shows_all_without_scrolling_sideways(show):
    page = show(**PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate("[...document.querySelectorAll('.u-wrap')].map((one) => one.getBoundingClientRect().right)")
    assert max(wide) <= 360
    low, high = scale(page)
    page.get_by_role("button", name="zoom in").first.tap()
    assert np.diff(scale(page)) == pytest.approx((high - low) / 2)
    x, y = spot(page, 0.5)
    page.touchscreen.tap(x, y)
    assert "mean: " in page.locator("#course .tip").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_fingers_pinch_and_move(show):
    page = show(**PHONE)
    low, high = scale(page)
    x, y = spot(page, 0.5)
    touch = page.context.new_cdp_session(page)

    def fingers(kind: str, *places: float) -> None:
        points = [{"x": place, "y": y, "id": i} for i, place in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", x - 30, x + 30)
    fingers("touchMove", x - 45, x + 45)
    fingers("touchMove", x - 60, x + 60)
    fingers("touchEnd")
    near = scale(page)
    assert np.diff(near) == pytest.approx((high - low) / 2, rel=0.1)
    fingers("touchStart", x)
    fingers("touchMove", x + 20)
    fingers("touchMove", x + 60)
    fingers("touchEnd")
    assert scale(page)[0] < near[0]
    assert np.diff(scale(page)) == pytest.approx(np.diff(near), rel=1e-6)


def test_paper_is_light_and_holds_the_charts(show, tmp_path):
    page = show(color_scheme="dark")
    seen = page.evaluate(
        "new Promise((done) => addEventListener('beforeprint', () => done(itocast.colour('card'))) || print())"
    )
    assert seen == "#ffffff"
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 680, "height": 900})
    wide = page.evaluate("[...document.querySelectorAll('canvas')].map((one) => one.getBoundingClientRect().right)")
    assert max(wide) <= 680
    assert not page.locator("#course .tools").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
