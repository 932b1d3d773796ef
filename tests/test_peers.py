"""The benchmark against other tools: its features, its scores and its page; no other tool is needed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm

from against import page, table
from against.features import flat
from against.laws import KNOTS, LEVELS, SCORES, interpolate, pit, score
from against.neural import Drawn
from against.ours import REGRESSORS, regress
from against.settings import PROTOCOLS, Setting
from against.work import PEERS, flattened, lacking
from itocast import Data, Forecast, metrics
from itocast.data.sources import Dataset
from peers import lacked, parse, tasks


def gaussian(rows: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Means, deviations, quantiles and outcomes of Gaussian laws that are a little too wide."""
    generator = np.random.default_rng(0)
    mean, deviation = generator.normal(size=(rows, 1, 1)), generator.uniform(0.5, 2, (rows, 1, 1))
    y = mean + 0.9 * deviation * generator.normal(size=(rows, 1, 1))
    return mean, deviation, mean + deviation * SCORES.reshape(-1, 1, 1, 1), y


def setting(horizon: int, series: int = 1) -> Setting:
    """Hours of counted values, so that a value says its row."""
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    frame = pd.concat(
        pd.DataFrame({"id": f"s{i}", "ds": hours, "y": 1000.0 * i + np.arange(200), "w": -np.arange(200.0)})
        for i in range(series)
    ).reset_index(drop=True)
    schema = {"target": "y", "time": "ds", "id": "id", "past": ["w"]}
    protocol = PROTOCOLS["practical" if horizon == 1 else "practical-24"]
    opened = Dataset(frame, schema, None, False, "")  # type: ignore[arg-type]
    return Setting(protocol, opened, frame, schema, Data(validation=0.25), hours[159])


def test_interpolation_is_exact_for_a_gaussian() -> None:
    values = 3 + 2 * norm.ppf(KNOTS)[:, None]
    np.testing.assert_allclose(interpolate(values, KNOTS)[:, 0], 3 + 2 * norm.ppf(LEVELS))


def test_interpolation_sorts_quantiles_that_cross() -> None:
    values = norm.ppf(KNOTS)[::-1, None]
    np.testing.assert_allclose(interpolate(values, KNOTS)[:, 0], norm.ppf(LEVELS))


def test_interpolation_by_hand() -> None:
    """Half way in normal scores between the levels 0.5 and Φ(1)."""
    found = interpolate(np.array([[0.0], [10.0]]), np.array([0.5, norm.cdf(1.0)]))
    np.testing.assert_allclose(found[68, 0], 10 * norm.ppf(0.69))


def test_pit_of_a_gaussian_is_its_cdf_also_in_the_tails() -> None:
    y = np.linspace(-4, 4, 201)
    q = np.broadcast_to(SCORES[:, None], (99, 201))
    np.testing.assert_allclose(pit(q, y), norm.cdf(y), atol=1e-12)


def test_pit_on_an_atom_is_uniform_below_its_probability() -> None:
    """A law with a probability of 0.3 of 0: outcomes of 0 are spread over 0 … 0.3."""
    q = np.repeat(np.maximum(LEVELS - 0.3, 0.0)[:, None], 20_000, 1)
    u = pit(q, np.zeros(20_000))
    assert u.min() >= 0
    assert u.max() <= 0.3 + 1e-12
    assert abs(u.mean() - 0.15) < 0.005


def test_pit_beyond_a_flat_end_is_certain() -> None:
    np.testing.assert_array_equal(pit(np.zeros((99, 2)), np.array([-1.0, 1.0])), [0.0, 1.0])


def test_scores_are_those_of_metrics_for_a_gaussian() -> None:
    mean, deviation, q, y = gaussian()
    law = Forecast(torch.from_numpy(mean)[None], torch.from_numpy(deviation)[None] ** 2)
    expected, found = metrics.evaluate(law, y), score(q, mean, y)
    for name in (
        "rmse",
        "cwce",
        "cwce_one_sided",
        "r_cwce",
        "coverage_50",
        "coverage_80",
        "coverage_90",
        "coverage_95",
    ):
        assert found[name] == pytest.approx(expected[name], abs=1e-9), name
    assert found["crps"] == pytest.approx(expected["crps"], rel=0.01)  # 99 levels, not all
    assert found["width_90"] == pytest.approx(metrics.epiw(law, 90))


def test_outcomes_that_are_missing_do_not_count() -> None:
    mean, _, q, y = gaussian(100)
    part = score(q[:, :60], mean[:60], y[:60])
    y[60:] = np.nan
    assert score(q, mean, y) == pytest.approx(part)


def test_without_a_mean_the_quantiles_give_it() -> None:
    mean, _, q, y = gaussian(100)
    assert score(q, None, y)["rmse"] == pytest.approx(score(q, mean, y)["rmse"])


def test_windows_drawn_are_those_of_a_full_copy() -> None:
    """As neuralforecast lays all windows out, series after series."""
    rows = torch.arange(3 * 4 * 20.0).reshape(3, 4, 20)  # (series, columns, rows)
    windows = rows.unfold(-1, 6, 1)
    copied = windows.permute(0, 2, 3, 1).flatten(0, 1).unsqueeze(-1)
    chosen = torch.tensor([0, 14, 15, 44, 7, 7])
    torch.testing.assert_close(Drawn(windows)[chosen], copied[chosen], rtol=0, atol=0)


@pytest.mark.parametrize("series", [1, 3])
def test_features_end_at_the_origin_and_targets_come_after(series: int) -> None:
    parts = setting(1, series).parts
    [rows] = flat(parts, parts.test)
    assert len(rows) == 40 * series
    np.testing.assert_array_equal(rows.near + 1, rows.y)
    lags = [i for i, name in enumerate(rows.names) if name.startswith("lag")]
    np.testing.assert_array_equal(rows.x[:, lags], rows.near[:, None] - np.arange(23, -1, -1))
    np.testing.assert_array_equal(rows.x[:, rows.names.index("past 0")], -(rows.near % 1000))
    hours = rows.x[:, rows.names.index("calendar 0")]
    np.testing.assert_array_equal(hours, rows.y % 1000 % 24)  # of the step that is forecast
    assert rows.categories == ((rows.names.index("series 0"),) if series > 1 else ())


def test_rows_to_stop_on_are_in_order_of_time_over_all_series() -> None:
    [held] = flattened(setting(1, 3).parts)[1]
    np.testing.assert_array_equal(held.y % 1000, np.repeat(np.arange(120, 160), 3))


def test_steps_of_a_forecast_are_stacked() -> None:
    parts = setting(24).parts
    [rows] = flat(parts, parts.test)
    step = rows.x[:, rows.names.index("step 0")]
    np.testing.assert_array_equal(rows.y, rows.near + 24)  # the value a day before
    np.testing.assert_array_equal(rows.y, rows.x[:, rows.names.index("lag 23")] + 1 + step)
    np.testing.assert_array_equal(step[:24], np.arange(24))
    [thinned] = flat(parts, parts.train, most=48)
    assert len(thinned) == 48


def test_parts_do_not_overlap() -> None:
    parts = setting(1).parts
    ends = [(int(w.steps().min()), int(w.steps().max())) for w in (parts.train, parts.validation, parts.test)]
    assert ends == [(24, 119), (120, 159), (160, 199)]


def test_panel_of_neuralforecast_has_the_same_rows() -> None:
    from against.neural import Panel

    parts = setting(24, 2).parts
    panel = Panel(parts)
    assert panel.count(parts.test) == 24
    assert panel.count(parts.validation) == 40
    assert panel.until(parts.test).groupby("unique_id")["ds"].max().tolist() == [183, 183]
    assert (panel.frame["y"].to_numpy() * panel.scale[0] + panel.shift[0])[5] == pytest.approx(5, abs=1e-3)
    assert panel.frame.loc[panel.frame["ds"] < 120, "hist0"].std(ddof=0) == pytest.approx(1, abs=1e-3)


def cell(peer: str, crps: float, seed: int = 0) -> dict:
    scores = dict.fromkeys(page.SCORES, 0.5) | {"crps": crps, "coverage_90": 0.9, "size": 10, "memory": 100}
    return {
        "settings": {"dataset": "metro", "protocol": "practical", "peer": peer, "seed": seed, "quick": False},
        "versions": {"itocast": "1.0"}, "packages": {"lightgbm": "4.0"}, "digest": "a", "rows": 1000, "tested": 200,
        "targets": 1, "file": "metro.csv", "unit": "vehicles per hour", "scores": scores,
    }  # fmt: skip


def test_page_from_cells(tmp_path) -> None:
    for one in (cell("itocast", 2.0), cell("itocast", 4.0, 1), cell("lightgbm-19", 2.5), cell("nhits", 9.0)):
        settings = one["settings"]
        file = tmp_path / "runs" / "cells" / "practical-metro" / f"{settings['peer']}-{settings['seed']}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(one))
    page.write(tmp_path / "runs", tmp_path)
    text = (tmp_path / page.PAGE).read_text()
    assert "| **itocast** | 3.00 ± 1.41 |" in text
    assert "| **2.50** |" in text
    assert "**missed**, holds in 0 of 1: the lowest CRPS of all peers\n" in text
    assert "  - not in practical metro: 3.00 ± 1.41, lightgbm-19 2.50\n" in text
    assert "**met**, holds in 1 of 1: Metro and Pickups: 88 to 92 %" in text
    assert "lightgbm 4.0" in text
    found = pd.read_csv(tmp_path / table.TABLE)
    assert found["crps"].tolist() == [3.0, 2.5, 9.0]


def test_cells_are_added_to_the_table_once(tmp_path) -> None:
    """Lines that were written and read again take further seeds as if all had been there from the start."""
    cells = [cell("itocast", crps, seed) for seed, crps in enumerate((2.0, 4.0, 9.0))] + [cell("nhits", 1.0)]
    cells[0]["scores"]["nll"] = cells[1]["scores"]["nll"] = cells[2]["scores"]["nll"] = 0.25
    table.write(table.added({}, cells[:2]), tmp_path)
    lines = table.added(table.added(table.read(tmp_path), cells), cells)
    line = lines["practical", "metro", "itocast"]
    assert line.seeds == (0, 1, 2)
    assert line.means["crps"] == pytest.approx(5.0)
    assert line.deviations["crps"] == pytest.approx(np.std([2.0, 4.0, 9.0], ddof=1))
    table.write(lines, tmp_path)
    again = table.read(tmp_path)
    assert again["practical", "metro", "itocast"].means["nll"] == 0.25
    assert "nll" not in again["practical", "metro", "nhits"].means
    assert np.isnan(again["practical", "metro", "nhits"].deviations["crps"])
    assert again["practical", "metro", "itocast"].packages == {"itocast": "1.0", "lightgbm": "4.0"}
    text = page.text(page.group(again))
    assert "; seeds: 3." in text
    assert "| NHITS, 1 of 3 runs |" in text
    assert "| **itocast** |" in text


def test_what_the_table_has_is_not_run_again() -> None:
    words = ["--datasets", "metro", "--protocols", "practical", "--peers", "itocast,nhits", "--seeds", "2"]
    lines = table.added({}, [cell("itocast", 2.0, 1)])
    left = lacked(tasks(parse(words)), lines)
    assert [task.key for task in left] == [f"practical-metro/{name}" for name in ("itocast-0", "nhits-0", "nhits-1")]


def test_the_page_says_what_the_block_is_worth() -> None:
    cells = [cell("itocast", 2.0), cell("itocast-no-g", 2.2), cell("itocast-no-block", 1.0)]
    for one, nll in zip(cells, (3.0, 3.25, 2.5), strict=True):
        one["scores"]["nll"] = nll
    text = page.text(page.group(table.added({}, cells)))
    assert "itocast, g = 0: CRPS +10.0 %, NLL +0.250 nats, CWCE +0.00; the default has the lower CRPS in 1 of 1" in text
    assert (
        "itocast without the block: CRPS -50.0 %, NLL -0.500 nats, CWCE +0.00; the default has the lower CRPS in 0 of"
        in text
    )


def test_page_refuses_cells_of_other_data() -> None:
    other = cell("lightgbm-19", 1.0) | {"digest": "b"}
    with pytest.raises(ValueError, match="practical metro differ in digest"):
        table.added({}, [cell("itocast", 1.0), other])


def test_page_refuses_an_empty_folder(tmp_path) -> None:
    with pytest.raises(ValueError, match="holds no cells"):
        page.write(tmp_path, tmp_path)


def test_tasks_are_all_settings_peers_and_seeds() -> None:
    words = "--datasets metro,solar,yacht --protocols practical,uci --peers itocast,lightgbm-19-relative --seeds 2"
    keys = [task.key for task in tasks(parse([*words.split(), "--splits", "1"]))]
    assert keys[0] == "practical-metro/itocast-0"
    assert len(keys) == 2 * 2 * 2 + 1  # a relative target needs a value that is near, which rows of numbers have not
    assert keys[-1] == "uci-yacht/itocast-0"


def test_our_models_for_rows_of_numbers_find_a_known_law() -> None:
    """A line with noise of deviation 0.5; an ensemble is of five plain networks."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (400, 2))
    y = 3 * x[:, 0] + generator.normal(0, 0.5, 400)
    found = {name: regress(name, x[:300], y[:300], x[300:], seed=0) for name in REGRESSORS}
    for name, answer in found.items():
        assert answer.mean is not None
        assert np.sqrt(np.square(answer.mean[:, 0, 0] - 3 * x[300:, 0]).mean()) < 0.25, name
        width = (answer.quantiles[89] - answer.quantiles[9]).mean()
        assert width == pytest.approx(0.5 * (norm.ppf(0.9) - norm.ppf(0.1)), rel=0.15), name
    assert found["deep-ensemble"].size == 5 * found["hnn"].size


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="peers"):
        parse(["--peers", "oracle"])
    assert lacking(("itocast",)) == {}
    assert "itocast" in PEERS


def test_quantile_regression_finds_known_quantiles() -> None:
    pytest.importorskip("lightgbm")
    from against.features import Rows
    from against.trees import LightGBMQuantiles

    generator = np.random.default_rng(0)
    x = generator.uniform(size=(6000, 1)).astype(np.float32)
    y = x[:, 0] + generator.normal(size=6000)
    rows = Rows(x, y, ("x",))
    model = LightGBMQuantiles(relative=False)
    model.fit(rows.take(slice(0, 4000)), rows.take(slice(4000, None)), seed=0)
    q, mean = model.predict(rows.take(slice(0, 500)))
    assert mean is None
    assert (np.diff(q, axis=0) >= 0).all()
    np.testing.assert_allclose((q[89] - q[9]).mean(), norm.ppf(0.9) - norm.ppf(0.1), atol=0.25)


def test_each_cell_can_have_a_process_of_its_own(tmp_path) -> None:
    from cell_work import square

    from itocast.paper import cells

    work = [cells.Task(f"squares/{seed}", square, {"seed": seed}) for seed in range(2)]
    made = cells.run(work, tmp_path, fresh=True)
    assert [cell["square"] for cell in made.values()] == [0, 1]
    assert len({cell["process"] for cell in made.values()}) == 2
