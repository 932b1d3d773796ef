"""The page in a real browser, used as a person would: with keys, a dropped file, and files that are wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import panel_frame, tiny
from playwright.sync_api import expect
from serving import running

SHOTS = os.environ.get("ITOCAST_SHOTS")  # a folder for pictures of the page


@pytest.fixture(scope="module")
def folder(tmp_path_factory, single, panel):
    folder = tmp_path_factory.mktemp("page")
    frame, forecaster = single
    forecaster.save(folder / "wave")
    frame.tail(120).to_csv(folder / "wave.csv", index=False)
    frame.tail(120).rename(columns={"ds": "When", "y": "Load, MW"}).to_csv(folder / "renamed.csv", index=False)
    many = panel_frame().drop(columns="promotion")
    tiny(calibration="adaptive").fit(many, past=["heat"], static=["place"]).save(folder / "panel")
    many.to_csv(folder / "panel.csv", index=False)
    return folder


@pytest.fixture
def site(folder):
    with running(folder / "wave", folder / "panel") as client:
        yield str(client.base_url)


@pytest.fixture
def page(browser, site):
    """The page, whose console must stay clean and which must ask no other host."""
    context = browser.new_context(viewport={"width": 1100, "height": 900}, accept_downloads=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith((site, "data:", "blob:")) else faults.append(request.url),
    )
    page.goto(site)
    expect(page.locator("#input")).to_be_visible()
    yield page
    context.close()
    assert [fault for fault in faults if "422" not in fault] == []  # a refused file is told by the browser, too


def shot(page, name: str) -> None:
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


def drop(page, path: Path) -> None:
    """Drop a file onto the page."""
    data = page.evaluate_handle(
        "([text, name]) => { const data = new DataTransfer(); data.items.add(new File([text], name)); return data; }",
        [path.read_text(), path.name],
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": data})


def test_a_dropped_file_is_forecast_and_downloaded(page, folder, single, tmp_path):
    drop(page, folder / "wave.csv")
    expect(page.locator("#result")).to_be_visible()
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#result-text")).to_contain_text("wave, version")
    expect(page.locator("#chart canvas")).to_be_visible()
    shot(page, "forecast")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    download.value.save_as(tmp_path / "forecast.csv")
    frame, forecaster = single
    expected = forecaster.predict(frame.tail(120), level=80)
    assert (tmp_path / "forecast.csv").read_text() == expected.to_csv(index=False, float_format="%.10g")


def test_by_keyboard_alone(page, folder):
    page.locator("#file").set_input_files(folder / "wave.csv")
    expect(page.locator("#result")).to_be_visible()
    page.locator("#level").focus()
    shown = page.locator("#chart-text").inner_text()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page.locator("#level-text")).to_have_text("95 %")
    assert page.locator("#chart-text").inner_text() != shown
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == "interval"
    page.keyboard.press("ArrowRight")
    expect(page.locator("#chart-text")).to_contain_text("of the variance is epistemic")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    shot(page, "parts")
    page.keyboard.press("Tab")
    focused = set()
    for _ in range(25):
        focused.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
        page.keyboard.press("Tab")
    assert {"plot", "save-csv", "save-json"} <= focused


def test_columns_of_other_names_are_mapped(page, folder):
    page.locator("#file").set_input_files(folder / "renamed.csv")
    expect(page.locator("#problem")).to_contain_text("choose below which one is ds, y")
    page.get_by_label("ds (time)").select_option("When")
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(page.locator("#problem")).to_have_text("Choose a column of the file for y.")
    page.get_by_label("y (target)").select_option("Load, MW")
    shot(page, "mapping")
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(page.locator("#result")).to_be_visible()
    expect(page.locator("#problem")).to_be_hidden()


def test_many_series_another_model_and_its_calibration(page, folder):
    expect(page.locator("#facts")).to_contain_text("Calibration")
    page.get_by_label("Model").select_option("panel")
    expect(page.locator("#facts")).to_contain_text("adaptive")
    expect(page.locator("#facts")).to_contain_text("/v1/observe tells it what happened")
    drop(page, folder / "panel.csv")
    expect(page.locator("#result")).to_be_visible()
    first = page.locator("#chart-text").inner_text()
    page.get_by_label("Series", exact=True).select_option("b")
    assert page.locator("#chart-text").inner_text() != first
    page.get_by_text("Numbers").click()
    expect(page.locator("#numbers tbody tr")).to_have_count(3)
    shot(page, "panel")


def test_forecast_without_a_file(page):
    page.get_by_role("button", name="Forecast after the rows the model knows").click()
    expect(page.locator("#result")).to_be_visible()
    shot(page, "own")


WRONG = {
    "empty": ("", "The file is empty"),
    "names alone": ("ds,y\n", "has column names but no rows"),
    "ragged": ("ds,y\n2024-01-01,1\n2024-01-02\n", "Row 2 has 1 cells, but there are 2 column names"),
    "quote": ('ds,y\n"2024-01-01,1\n', "never closed"),
    "twice": ("ds,y,y\n2024-01-01,1,2\n", "stands there twice"),
    "text": ("ds,y\n2024-01-01 00:00,1\n2024-01-01 01:00,many\n", "holds text, not numbers"),
    "times": ("ds,y\nsoon,1\nlater,2\n", "has no readable time"),
    "binary": ("ds,y\0\n1,2\n", "not a text file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_told_in_plain_words(page, tmp_path, case):
    text, message = WRONG[case]
    (tmp_path / "wrong.csv").write_text(text)
    page.locator("#file").set_input_files(tmp_path / "wrong.csv")
    expect(page.get_by_role("alert")).to_contain_text(message)
    if case == "text":
        shot(page, "wrong")


def test_a_file_that_is_not_utf_8_and_one_with_semicolons(page, tmp_path, folder):
    (tmp_path / "latin.csv").write_bytes("ds,y\n2024-01-01,é\n".encode("latin-1"))
    page.locator("#file").set_input_files(tmp_path / "latin.csv")
    expect(page.get_by_role("alert")).to_contain_text("not a text file in UTF-8")
    (tmp_path / "semicolons.csv").write_text((folder / "wave.csv").read_text().replace(",", ";"))
    page.locator("#file").set_input_files(tmp_path / "semicolons.csv")
    expect(page.locator("#result")).to_be_visible()


@pytest.mark.parametrize(("name", "settings"), [
    ("phone", {"viewport": {"width": 375, "height": 760}, "device_scale_factor": 2}),
    ("dark", {"viewport": {"width": 1100, "height": 900}, "color_scheme": "dark"}),
])  # fmt: skip
def test_phone_and_dark(browser, site, folder, name, settings):
    context = browser.new_context(**settings)
    page = context.new_page()
    page.goto(site)
    page.locator("#file").set_input_files(folder / "wave.csv")
    expect(page.locator("#result")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if name == "dark":
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    shot(page, name)
    context.close()


def test_a_token_is_asked_for(browser, folder):
    with running(folder / "wave", token="a-token-of-many-letters") as client:
        page = browser.new_page()
        page.goto(str(client.base_url))
        expect(page.get_by_role("alert")).to_contain_text("token is missing or wrong")
        page.get_by_label("This server asks for a token").fill("a-token-of-many-letters")
        page.keyboard.press("Enter")
        expect(page.locator("#input")).to_be_visible()
        page.get_by_role("button", name="Forecast after the rows the model knows").click()
        expect(page.locator("#result")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as JSON").click()
        assert json.loads(Path(download.value.path()).read_text())["model"] == "wave"
        page.close()


def test_the_interface_can_be_read_and_tried(page, site):
    page.goto(f"{site}/docs")
    page.get_by_text("/v1/models", exact=True).click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    answer = page.locator(".live-responses-table .highlight-code").first
    expect(answer).to_contain_text('"name": "wave"')
    shot(page, "docs")
