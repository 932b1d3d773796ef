"""Windows over a table and the scales they are seen in, against slow loops over the rows."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import panel_frame, wave, wave_frame

from itocast.data.clock import Clock
from itocast.data.preparation import CATEGORIES, SCALINGS, Data, NoWindows, Preparation, default_window
from itocast.data.reading import read_table
from itocast.data.table import Columns, Table
from itocast.data.windows import NARROWEST, WIDEST, Codes, Masked, Numbers, Windows
from itocast.forecast import Forecast

PLAIN = Data(scaling="minmax", local=False, calendar=False, identity=False)


def build(lengths: tuple[int, ...], missing: tuple[int, ...] = (), **columns) -> Table:
    """Series "a", "b" … of some lengths; y counts 1, 2 … through the table, z = -y, some of y missing."""
    ids = np.repeat([chr(ord("a") + i) for i in range(len(lengths))], lengths)
    y = 1.0 + np.arange(len(ids))
    frame = pd.DataFrame({"id": ids, "t": np.concatenate([np.arange(n) for n in lengths]), "y": y, "z": -y})
    frame.loc[list(missing), "y"] = np.nan
    names = {"targets": ("y",), "past": ("z",), **columns}
    return read_table(frame, Columns(id="id", time="t", **names))


def slow_origins(table: Table, window: int, horizon: int) -> list[int]:
    """The rows from which a forecast can be made and checked, one by one."""
    found = []
    for first, end in zip(table.starts[:-1], table.starts[1:], strict=True):
        for row in range(first, end):
            lags, ahead = table.y[first : row + 1], table.y[row + 1 : min(row + 1 + horizon, end)]
            enough = max(1, min(window, end - first - horizon))  # all rows before the last horizon, if those are few
            if (
                len(ahead) == horizon
                and row - first + 1 >= enough
                and (~np.isnan(lags)).any()
                and (~np.isnan(ahead)).any()
            ):
                found.append(row)
    return found


CASES = [
    ((30,), ()),
    ((12, 7, 20), ()),
    ((12, 6, 5, 4, 3, 1, 20), ()),
    ((12, 6, 9), (0, 1, 4, 5, 6, 12, 13, 20, 26)),
    ((15,), tuple(range(4, 11))),
]


@pytest.mark.parametrize(("lengths", "missing"), CASES)
@pytest.mark.parametrize(("window", "horizon"), [(1, 1), (4, 3), (5, 1)])
def test_windows_hold_the_rows_before_and_after_their_origin(lengths, missing, window, horizon):
    table = build(lengths, missing)
    preparation = Preparation.fit(table, horizon, window, PLAIN)
    windows = preparation.windows(table)
    origins = windows.origins.tolist()
    assert origins == slow_origins(table, window, horizon)
    scale = preparation.scales
    inputs, targets = windows.batch(slice(None))
    scalers = preparation.scalers
    low, spread = scalers["targets"].shift, scalers["targets"].scale
    for i, origin in enumerate(origins):
        series = table.series[origin]
        first = table.starts[series]
        (shift,), (deviation,), (rounding,) = scale[table.ids[series]]
        back = [max(first, origin - window + 1 + j) for j in range(window)]
        lags = []
        for row in back:
            seen = [table.y[r, 0] for r in range(first, row + 1) if not np.isnan(table.y[r, 0])]
            lags.append((seen[-1] - shift) / deviation if seen else np.nan)
        for found, part, expected in ((inputs.lags, "lags", lags), (inputs.anchor, "targets", lags[-1:] * horizon)):
            scaled = scalers[part].transform(np.array(expected)[:, None])[:, 0]
            np.testing.assert_allclose(found[i, :, 0], np.nan_to_num(scaled), atol=1e-4)
        ahead = (table.y[origin + 1 : origin + 1 + horizon, 0] - shift) / deviation
        half = 0.5 * rounding / deviation / spread[0] + 1e-4  # targets are spread over what was rounded to them
        np.testing.assert_allclose(targets[i, :, 0], (ahead - low[0]) / spread[0], atol=half)
        past = table.values["z"][back]
        np.testing.assert_allclose(
            inputs.past[i, :, 0], preparation.scalers["past"].transform(past[:, None])[:, 0], atol=1e-5
        )
        np.testing.assert_array_equal(windows.actuals()[i], table.y[origin + 1 : origin + 1 + horizon])


def test_lags_show_how_large_a_series_is_and_targets_do_not():
    """The second series is ten times the first; then one comes that is a million times as large as that."""
    small = 5.0 + np.sin(np.arange(60.0))
    ids, times = np.repeat(["a", "b"], 60), np.tile(np.arange(60), 2)
    frame = pd.DataFrame({"id": ids, "t": times, "y": np.concatenate([small, 10 * small])})
    columns = Columns(id="id", time="t", targets=("y",))
    preparation = Preparation.fit(table := read_table(frame, columns), 1, 4, Data(local=False))
    windows = preparation.windows(table)
    inputs, targets = windows.batch(slice(None))
    first = windows.numbers.series[windows.origins] == 0
    torch.testing.assert_close(targets[first], targets[~first])
    torch.testing.assert_close(inputs.anchor[first], inputs.anchor[~first])
    assert inputs.lags[first].max() < inputs.lags[~first].min()
    huge = read_table(frame[:60].assign(id="c", y=1e7 * small), columns)
    lags = preparation.meeting(huge).windows(huge).batch(slice(None))[0].lags
    assert inputs.lags.max() < lags.min() < lags.max() < 25


def test_a_short_series_gives_what_it_has():
    """Seven rows with a window of six and a horizon of three: whole windows there are none, forecasts there are."""
    table = build((30, 7))
    windows = Preparation.fit(table, 3, 6, PLAIN).windows(table)
    short = windows.origins[windows.origins >= 30]
    assert short.tolist() == [33]
    lags = windows.batch(slice(None))[0].lags[-1, :, 0]
    assert (lags[:3] == lags[2]).all()  # the first row is repeated
    assert (lags[3:].diff() > 0).all()


def test_targets_lie_after_one_instant_and_up_to_another():
    table = build((40, 40))
    preparation = Preparation.fit(table, 3, 4, PLAIN)
    windows = preparation.windows(table, after=19, until=30)
    times = table.times[windows.steps().numpy()]
    assert times.min() == 20
    assert times.max() == 30
    assert len(windows) == 2 * (11 - 3 + 1)
    early, late = preparation.windows(table, until=19), preparation.windows(table, after=19)
    assert not set(early.steps().reshape(-1).tolist()) & set(late.steps().reshape(-1).tolist())


def test_age_and_steps_are_features_where_they_vary():
    whole, holes = build((40,)), build((40,), missing=(10, 11))
    sizes = [Preparation.fit(t, 1, 4, PLAIN).windows(t).sizes.known for t in (whole, holes)]
    assert sizes == [0, 4]  # the age of each lag
    windows = Preparation.fit(holes, 1, 4, PLAIN).windows(holes)
    age = windows.batch(windows.origins == 12)[0].known[0]
    expected = [0.0, np.log1p(1), np.log1p(2), 0.0]
    np.testing.assert_allclose(age, expected, atol=1e-6)


def test_irregular_times_are_features_unless_told_otherwise():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"t": np.cumsum(random.integers(1, 4, 60)), "y": random.standard_normal(60)})
    table = read_table(frame, Columns(id=None, time="t", targets=("y",)), gaps="keep")
    with_time, without = (
        Preparation.fit(table, 2, 4, PLAIN.model_copy(update={"elapsed": elapsed})) for elapsed in (True, False)
    )
    assert (with_time.irregular, without.irregular) == (True, False)
    assert with_time.windows(table).sizes.known == 4 + 2
    assert without.windows(table).sizes.known == 0


def test_sizes_are_those_of_the_batches():
    frame = panel_frame(60)
    columns = Columns(
        id="unique_id", time="ds", targets=("y",), past=("heat",), future=("promotion",), static=("place",)
    )
    table = read_table(frame, columns)
    for data in (Data(), PLAIN, Data(holidays="US"), Data(scaling="rank", identity=False)):
        windows = Preparation.fit(table, 3, 4, data).windows(table)
        x, y = windows.batch(slice(0, 5))
        sizes = windows.sizes
        assert x.lags.shape == (5, sizes.window, sizes.targets)
        assert x.past.shape == (5, sizes.window, sizes.covariates)
        assert x.known.shape == (5, sizes.known)
        assert x.anchor.shape == y.shape == (5, sizes.horizon, sizes.targets)
        assert all(part.isfinite().all() for part in x)
        assert all(part.dtype == torch.float32 for part in (*x, y))


def test_what_is_known_ahead_is_that_of_the_steps_forecast():
    frame = panel_frame(60)
    columns = Columns(id="unique_id", time="ds", targets=("y",), future=("promotion",))
    table = read_table(frame, columns)
    preparation = Preparation.fit(table, 3, 4, PLAIN)
    windows = preparation.windows(table)
    known = windows.batch(slice(None))[0].known
    expected = table.values["promotion"][windows.steps().numpy()]
    np.testing.assert_allclose(known, preparation.scalers["future"].transform(expected.reshape(-1, 1)).reshape(-1, 3))


def test_each_series_has_a_scale_of_its_own():
    table = read_table(panel_frame(), Columns(id="unique_id", time="ds", targets=("y",)))
    preparation = Preparation.fit(table, 3, 4)
    for i, label in enumerate("abc"):
        y = table.y[table.series == i, 0]
        (shift,), (scale,), _ = preparation.scales[label]
        assert shift == pytest.approx(y.mean())
        assert scale == pytest.approx(y.std())


def test_counts_are_learned_without_their_rounding_and_scored_with_it():
    frame = pd.DataFrame({"t": np.arange(400), "y": np.random.default_rng(0).poisson(3, 400)})
    table = read_table(frame, Columns(id=None, time="t", targets=("y",)))
    preparation = Preparation.fit(table, 1, 4, PLAIN)
    windows = preparation.windows(table)
    targets = windows.batch(slice(None))[1].double()
    law = preparation.unscale(Forecast(targets[None], torch.full_like(targets, 1e-12)[None]), windows)
    actual = windows.actuals()
    off = law.mean - actual
    assert actual.equal(actual.round())
    assert off.abs().max() <= 0.5 + 1e-6
    assert off.mean().abs() < 0.05
    assert off.std() == pytest.approx(12**-0.5, abs=0.02)  # uniform
    assert torch.equal(windows.batch(slice(None))[1], preparation.windows(table).batch(slice(None))[1])


def test_values_that_never_repeat_are_not_taken_as_rounded():
    frame = pd.DataFrame({"t": np.arange(6), "y": [1.0, 5.0, 20.0, 50.0, 10.0, 100.0]})
    table = read_table(frame, Columns(id=None, time="t", targets=("y",)))
    preparation = Preparation.fit(table, 1, 2, PLAIN)
    windows = preparation.windows(table)
    targets = windows.batch(slice(None))[1].double()
    law = preparation.unscale(Forecast(targets[None], torch.full_like(targets, 1e-12)[None]), windows)
    torch.testing.assert_close(law.mean, windows.actuals(), rtol=1e-4, atol=1e-4)


def test_a_new_series_is_scaled_by_its_own_rows():
    table = read_table(panel_frame(), Columns(id="unique_id", time="ds", targets=("y",)))
    preparation = Preparation.fit(table.take(table.series < 2), 3, 4)
    with pytest.raises(ValueError, match="series 'c' has no observed value"):
        preparation.windows(table)
    cut = table.cutoff(0.5)
    met = preparation.meeting(table, cut)
    seen = table.y[(table.series == 2) & (table.times <= cut), 0]
    assert met.scales["c"][0][0] == pytest.approx(seen.mean())
    assert {name: met.scales[name] for name in "ab"} == preparation.scales
    assert "c" not in preparation.scales
    lags = met.windows(table).batch(slice(-20, None))[0].lags
    assert lags.abs().max() < 10


def test_categories_become_columns_and_what_was_never_seen_none():
    codes = Codes(torch.tensor([[1, 2], [0, 1], [2, 0]], dtype=torch.int16), (2, 3))
    found = codes.expand(torch.arange(3))
    assert found.tolist() == [[1, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    frame = panel_frame(60).assign(sky="grey")
    frame.loc[::3, "sky"] = "blue"
    columns = Columns(id="unique_id", time="ds", targets=("y",), past=("sky",), static=("place",))
    table = read_table(frame, columns)
    preparation = Preparation.fit(table, 3, 4, PLAIN)
    assert preparation.categories == {"sky": ["blue", "grey"], "place": ["hill", "sea"]}
    known = preparation.windows(table).batch(slice(None))[0].known
    assert known.shape[1] == 4
    assert (known[:, :2].sum(1) == 1).all()
    assert (known[:, 2:].sum(1) == 1).all()
    other = read_table(frame.assign(sky="green", place="moon"), columns, clock=table.clock, categories=["sky", "place"])
    assert (preparation.windows(other).batch(slice(None))[0].known == 0).all()


def test_too_many_categories_are_told_apart_up_to_a_number():
    frame = panel_frame(60)
    frame["sky"] = [f"sky {i % 100}" for i in range(len(frame))]
    table = read_table(frame, Columns(id="unique_id", time="ds", targets=("y",), past=("sky",)))
    assert len(Preparation.fit(table, 3, 4).categories["sky"]) == CATEGORIES


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_law_comes_back_in_the_tables_units(scaling, local):
    """A law that is certain of the targets in the model's scale is certain of them in the table's."""
    table = read_table(panel_frame(), Columns(id="unique_id", time="ds", targets=("y",)))
    preparation = Preparation.fit(table, 3, 4, Data(scaling=scaling, local=local), until=table.cutoff(0.7))
    windows = preparation.windows(table)
    scaled = windows.batch(slice(None))[1].double()
    law = preparation.unscale(Forecast(scaled[None], torch.full_like(scaled, 1e-10)[None]), windows)
    torch.testing.assert_close(law.quantile(0.5), windows.actuals(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(law.mean.double(), windows.actuals(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_probabilities_do_not_depend_on_the_scale(scaling, local):
    """P(Y ≤ y) is the same in the model's scale and in the table's units."""
    table = wave()
    preparation = Preparation.fit(table, 3, 4, Data(scaling=scaling, local=local), until=table.cutoff(0.6))
    windows = preparation.windows(table).thin(50)
    targets = windows.batch(slice(None))[1].double()
    inner = Forecast(torch.zeros(1, *targets.shape), torch.ones(1, *targets.shape))
    outer = preparation.unscale(inner, windows)
    torch.testing.assert_close(outer.cdf(windows.actuals()), inner.cdf(targets), atol=2e-3, rtol=0)


def test_preparation_survives_json():
    columns = Columns(
        id="unique_id", time="ds", targets=("y",), past=("heat",), future=("promotion",), static=("place",)
    )
    frame = panel_frame(80)
    frame.loc[5:9, "y"] = np.nan
    table = read_table(frame, columns)
    preparation = Preparation.fit(table, 3, 4, Data(holidays="DE"))
    again = Preparation.from_dict(json.loads(json.dumps(preparation.to_dict())))
    assert again.to_dict() == preparation.to_dict()
    for one, two in zip(*(p.windows(table).batch(slice(None))[0] for p in (preparation, again)), strict=True):
        assert torch.equal(one, two)


def test_windows_are_never_written_out():
    """What is kept is a row for each row of the table, whatever the window."""
    table = wave(2000)

    def held(numbers: Numbers) -> int:
        parts = [getattr(numbers, field.name) for field in fields(numbers)]
        parts = [part.values if isinstance(part, Codes) else part for part in parts]
        return sum(part.untyped_storage().nbytes() for part in parts if isinstance(part, torch.Tensor))

    small, large = (Preparation.fit(table, 24, window).windows(table).numbers for window in (4, 400))
    assert held(small) == held(large)
    assert held(large) < 2000 * 8 * 60
    assert Preparation.fit(table, 24, 400).windows(table).batch(slice(0, 2))[0].lags.shape == (2, 400, 2)


def test_thinned_and_spaced_windows():
    table = build((40, 30))
    windows = Preparation.fit(table, 1, 4, PLAIN).windows(table)
    thin = windows.thin(5)
    assert len(thin) == 5
    assert thin.origins[0] == windows.origins[0]
    assert thin.origins[-1] == windows.origins[-1]
    assert windows.thin(10_000) is windows
    spaced = windows.every(7)
    for series in (0, 1):
        origins = spaced.origins[spaced.numbers.series[spaced.origins] == series]
        assert origins[0] == windows.origins[windows.numbers.series[windows.origins] == series][0]
        assert (origins.diff() == 7).all()
    assert torch.equal(torch.cat([part.origins for part in windows.chunks(9)]), windows.origins)
    assert [len(part) for part in windows.chunks(9)][:-1] == [9] * (len(windows) // 9)


def test_the_windows_ahead_are_the_last_of_the_table():
    table = build((20, 9))
    preparation = Preparation.fit(table, 3, 4, PLAIN)
    windows, whole = preparation.ahead(table)
    assert len(whole) == len(table) + 6
    assert whole.times[windows.steps().numpy()].tolist() == [[20, 21, 22], [9, 10, 11]]
    assert np.isnan(whole.y[windows.steps().numpy()]).all()
    lags = windows.batch(slice(None))[0].lags
    last = preparation.windows(table).numbers.lags[[16, 17, 18, 19], 0]
    torch.testing.assert_close(lags[0, :, 0], last)


@pytest.mark.parametrize(
    ("freq", "dates", "horizon", "window"),
    [("h", True, 1, 24), ("h", True, 48, 48), ("h", True, 500, 72), ("D", True, 1, 7), ("MS", True, 1, 12),
     ("YE", True, 1, 10), ("1", False, 1, 10), ("1", False, 100, 30)],
)  # fmt: skip
def test_the_default_window_follows_season_and_horizon(freq, dates, horizon, window):
    assert default_window(Clock(freq, dates), horizon, 2000) == window


def test_one_row_is_enough_to_know_a_scale_and_none_is_not():
    table = build((30,))
    (shift,), (scale,), _ = Preparation.fit(table, until=0).scales["a"]
    assert shift == 1.0
    assert np.isfinite(scale)
    assert scale > 0
    with pytest.raises(NoWindows, match="no rows come before the cut: there is nothing to learn from"):
        Preparation.fit(table, until=-5)


def test_a_table_without_a_window_is_refused():
    table = build((30,))
    preparation = Preparation.fit(table, 3, 4)
    with pytest.raises(ValueError, match=r"window=4 and horizon=3 need rows .* and the longest series has 30 rows"):
        preparation.windows(table, after=28)


# ---- the level of a window, shown where training saw such


def drifting(rows: int = 60, seed: int = 0) -> Table:
    """Two random walks of very different sizes."""
    random = np.random.default_rng(seed)
    walks = [1000 + 50 * random.standard_normal(rows).cumsum(), random.standard_normal(rows).cumsum()]
    ids, times = np.repeat(["a", "b"], rows), np.tile(np.arange(rows), 2)
    frame = pd.DataFrame({"id": ids, "t": times, "y": np.concatenate(walks)})
    return read_table(frame, Columns(id="id", time="t", targets=("y",)))


def moved(table: Table, label: str, deviations: float, preparation: Preparation) -> Table:
    """The same with one series higher by so many of its deviations."""
    by = deviations * preparation.scales[label][1][0]
    y = table.values["y"] + by * (table.ids[table.series] == label)
    return replace(table, values=table.values | {"y": y})


def slow_levels(table: Table, preparation: Preparation, until: int) -> dict[str, list[tuple[float, float]]]:
    """Mean and spread of each window that training sees, in deviations of its series, one by one."""
    found = {}
    window, horizon = preparation.window, preparation.horizon
    for i, label in enumerate(table.ids):
        y, times = (part[table.series == i] for part in (table.y[:, 0], table.times))
        (shift,), (scale,), _ = preparation.scales[label]
        last = [row for row in range(window - 1, len(y) - horizon) if times[row + horizon] <= until]
        parts = [(y[row - window + 1 : row + 1] - shift) / scale for row in last]
        found[label] = [(part.mean(), part.std()) for part in parts]
    return found


OWN = 1 + 1 + 1 + 4  # columns of the series alone: whether its level is shown, level, spread, four lags by rank


def own(batch: torch.Tensor) -> torch.Tensor:
    """The columns that are of the series alone."""
    return batch[:, -OWN:]


@pytest.fixture
def drifted() -> tuple[Table, Preparation]:
    table = drifting()
    preparation = Preparation.fit(table, 2, 4, until=39)
    return table, preparation.seen(preparation.windows(table, until=39))[0]


def test_the_range_of_levels_is_that_of_the_windows_of_training(drifted):
    table, preparation = drifted
    levels = slow_levels(table, preparation, until=39)
    for label, found in levels.items():
        (low,), (high,) = preparation.ranges[label]
        centres = [centre for centre, _ in found]
        assert (low, high) == pytest.approx((min(centres), max(centres)), abs=1e-4)
    spreads = [spread for found in levels.values() for _, spread in found]
    assert preparation.floor == pytest.approx(np.median(spreads), abs=0.02)
    assert NARROWEST < preparation.floor < WIDEST


@pytest.mark.parametrize(("noise", "floor"), [(1e-3, NARROWEST), (1.0, WIDEST)])
def test_the_spread_that_is_added_has_bounds(noise, floor):
    """Next to no noise about a line in windows of 4, and nothing but noise in windows of 40."""
    window = 4 if noise < 1 else 40
    t = np.arange(400)
    y = t * (noise < 1) + noise * np.random.default_rng(0).standard_normal(400)
    frame = pd.DataFrame({"t": t, "y": y})
    table = read_table(frame, Columns(id=None, time="t", targets=("y",)))
    preparation = Preparation.fit(table, 1, window)
    assert preparation.seen(preparation.windows(table))[0].floor == pytest.approx(floor, rel=0.02)


def test_inside_the_range_the_level_is_shown(drifted):
    table, preparation = drifted
    windows = preparation.windows(table, until=39)
    columns = own(windows.batch(slice(None))[0].known)
    expected = [level for found in slow_levels(table, preparation, 39).values() for level in found]
    centre, spread = torch.tensor(expected).T
    assert windows.own == OWN
    assert (columns[:, 0] == 1).all()
    torch.testing.assert_close(columns[:, 1], centre.float(), atol=1e-4, rtol=0)
    log_spread = (spread.square() + preparation.floor**2).sqrt().log()
    torch.testing.assert_close(columns[:, 2], log_spread.float(), atol=1e-4, rtol=0)
    lags = windows.numbers.lags[windows.back(slice(None))][..., 0]
    assert torch.equal(columns[:, 3:], lags)


def test_outside_the_range_the_network_reads_the_shape_alone(drifted):
    """One series stands 40 deviations higher: what is read of it is as before but for the level, which is hidden."""
    table, preparation = drifted
    high = moved(table, "b", 40.0, preparation)
    before, after = (preparation.windows(t, until=39) for t in (table, high))
    b = before.numbers.series[before.origins] == 1
    (old, _), (new, _) = before.batch(slice(None)), after.batch(slice(None))
    assert (own(new.known)[b] == 0).all()
    for part, other in zip(new, old, strict=True):
        assert torch.equal(part[~b], other[~b])
    assert torch.equal(new.known[b][:, :-OWN], old.known[b][:, :-OWN])
    torch.testing.assert_close(new.lags, old.lags, atol=1e-4, rtol=0)
    torch.testing.assert_close(new.anchor, old.anchor, atol=1e-4, rtol=0)


def test_a_series_that_training_did_not_see_has_no_range(drifted):
    table, preparation = drifted
    other = replace(table.take(table.series == 0), ids=np.array(["c"], object))
    windows = preparation.meeting(other).windows(other)
    assert (own(windows.batch(slice(None))[0].known) == 0).all()
    known = preparation.windows(table).batch(slice(None))[0].known
    assert (own(known)[: len(windows)] != 0).any()


def test_some_windows_are_learned_from_without_their_level_too(drifted):
    table, preparation = drifted
    windows = preparation.windows(table, until=39)
    masked = Masked.of(windows, 5)
    assert len(masked) == len(windows) + 5
    assert masked.copies.tolist() == torch.linspace(0, len(windows) - 1, 5).round().long().tolist()
    (x, y), (plain, targets) = masked.batch(slice(None)), windows.batch(slice(None))
    count = len(windows)
    for part, other in zip((*x, y), (*plain, targets), strict=True):
        assert torch.equal(part[:count], other)
    for part, other in zip((x.lags, x.anchor, y), (plain.lags, plain.anchor, targets), strict=True):
        assert torch.equal(part[count:], other[masked.copies])
    assert (own(x.known[count:]) == 0).all()
    assert torch.equal(x.known[count:, :-OWN], plain.known[masked.copies, :-OWN])
    order = torch.tensor([count + 2, 0, count - 1, count])
    for part, whole in zip((*masked.batch(order)[0], masked.batch(order)[1]), (*x, y), strict=True):
        assert torch.equal(part, whole[order])
    assert len(Masked.of(windows, 10_000)) == 2 * len(windows)
    assert masked.sizes == windows.sizes


# ---- seasons beyond the window


def hours(rows: int = 400, gaps: str = "auto", every: int | None = None) -> Table:
    """Two targets an hour; with `every`, each so many-th hour is missing."""
    frame = wave_frame(rows)
    kept = frame if every is None else frame[np.arange(rows) % every > 0]
    return read_table(kept, Columns(id=None, time="time", targets=("load", "price")), gaps=gaps)


def test_what_each_step_was_a_day_and_a_week_ago_is_read():
    """Relative to mean and spread of the window; before the start of the series 0, and a mark says so."""
    table = hours()
    preparation = Preparation.fit(table, 2, 4, Data(calendar=False))
    assert preparation.echoes == (24, 168)
    windows = preparation.windows(table)
    known = windows.batch(slice(None))[0].known
    assert windows.own == OWN + 2 * (2 + 1)  # of each target: two steps and a mark, a day and a week ago
    assert known.shape == (len(windows), 2 * windows.own)
    day, week, _ = known.split([6, 6, 2 * OWN], 1)
    (shift,), (scale,) = ([part] for part in preparation.scales[table.ids[0]][:2])
    standard = (table.y - shift) / scale
    for echo, columns in ((24, day), (168, week)):
        for found, origin in zip(columns, windows.origins.tolist(), strict=True):
            past = standard[origin - 3 : origin + 1]
            centre, spread = past.mean(0), np.sqrt(past.var(0) + preparation.floor**2)
            there = origin + 1 >= echo
            then = standard[origin + 1 - echo : origin + 3 - echo] if there else np.tile(centre, (2, 1))
            np.testing.assert_allclose(found[:4].unflatten(0, (2, 2)), (then - centre) / spread, atol=1e-5)
            assert found[4:].tolist() == [there, there]


def test_seasons_are_read_where_rows_are_even_and_there_are_twice_as_many():
    def echoes(table: Table, window: int = 4, **settings) -> tuple[int, ...]:
        return Preparation.fit(table, 2, window, Data(**settings)).echoes

    assert echoes(hours(335)) == (24,)
    assert echoes(hours(336)) == (24, 168)
    assert echoes(hours(), window=24) == (168,)
    assert echoes(hours(), local=False) == ()
    holes = hours(gaps="keep", every=9)
    assert echoes(holes) == echoes(holes, elapsed=False) == ()


# ---- how much windows tell, and what came before them


def test_forecasts_that_share_outcomes_count_as_fewer():
    """Of 37 origins that follow one another, 12 steps ahead, the first, 13th, 25th and 37th share none."""
    table = build((49, 49, 13))
    windows = Preparation.fit(table, 12, 1, PLAIN).windows(table)
    series = windows.numbers.series[windows.origins]
    one = windows.only((series == 0).numpy())
    assert (len(one), one.independent()) == (37, 4.0)
    assert windows.independent() == 4.0 + 4.0 + 1.0
    assert one.every(12).independent() == 4.0
    assert one.every(36).independent() == 2.0  # there are no more than two
    assert one.last(7).independent() == 1.5


def test_history_is_what_was_observed_up_to_each_origin():
    table = build((9, 6), missing=(3,))
    windows = Preparation.fit(table, 2, 1, PLAIN).windows(table)
    history = windows.history(5)
    assert history.shape == (len(windows), 5, 1)
    for found, origin in zip(history[..., 0], windows.origins.tolist(), strict=True):
        first = table.starts[table.series[origin]]
        expected = [table.y[row, 0] if row >= first else np.nan for row in range(origin - 4, origin + 1)]
        np.testing.assert_array_equal(found, expected)


def test_a_cut_between_forecasts_is_one_in_each_series():
    """Of what is made up to it all come before, of what is made after it none; in a series without any, all after."""
    table = build((20, 30, 8))
    windows = Preparation.fit(table, 2, 4, PLAIN).windows(table, after=9).by_time(table.times)
    before = torch.arange(len(windows)) < 12
    cut = windows.cut(before)
    assert torch.equal(windows.made() > windows.instants(cut), ~before)
    assert cut.labels == ("a", "b")  # the third ends too early
    assert torch.equal(windows.made(), torch.from_numpy(table.times[windows.origins.numpy()]))
    assert (windows.made() > windows.instants(windows.cut(before & False))).all()
    assert (windows.made() <= windows.instants(windows.cut(before | True))).all()


def slow_beside(windows: Windows, part: torch.Tensor) -> list[bool]:
    """Which forecasts share no outcome with any that may be made from after the window before a part to its last."""
    series, rows = windows.numbers.series[windows.origins].tolist(), windows.origins.tolist()
    found = []
    for mine, row in zip(series, rows, strict=True):
        inner = [other for other, at, one in zip(rows, series, part.tolist(), strict=True) if one and at == mine]
        earlier = [other for other, at in zip(rows, series, strict=True) if at == mine and inner and other < min(inner)]
        begin = max(earlier) + 1 if earlier else min(inner, default=0)
        steps = {made + k for made in range(begin, max(inner, default=-1) + 1) for k in range(1, windows.horizon + 1)}
        found.append(not steps & set(range(row + 1, row + 1 + windows.horizon)))
    return found


@pytest.mark.parametrize("most", [1000, 25])
def test_forecasts_beside_a_part_share_no_outcome_with_it(most):
    table = build((30, 40, 12))
    windows = Preparation.fit(table, 3, 4, PLAIN).windows(table).by_time(table.times).thin(most)
    for part in (torch.arange(len(windows)) * 5 // len(windows) == one for one in range(5)):
        beside = windows.beside(part)
        assert beside.tolist() == slow_beside(windows, part)
        assert beside.any()
        assert not (beside & part).any()


def test_outcomes_lie_between_two_cuts():
    table = build((20, 30, 8))
    windows = Preparation.fit(table, 2, 4, PLAIN).windows(table, after=9)
    begin, end = windows.around()
    assert begin.labels == end.labels == ("a", "b")
    assert (begin.instants.tolist(), end.instants.tolist()) == ([9, 9], [19, 29])
