"""Time: steps that are inferred, the times ahead, seasons, the calendar, zones, holidays."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from itocast.data.clock import DAY, Clock

HOUR = DAY // 24


def instants(times) -> np.ndarray:
    return pd.DatetimeIndex(times).as_unit("us").asi8


def inferred(times, zone: str | None = None) -> Clock:
    return Clock.infer(instants(times), np.array([0, len(times)]), zone, dates=True)


def shown(clock: Clock, last: str, horizon: int) -> list[str]:
    """The next steps after a time, as text."""
    time = pd.Timestamp(last, tz=clock.zone)
    return [str(t) for t in clock.index(clock.ahead(instants([time]), horizon)[0])]


# ---- the step between rows


@pytest.mark.parametrize(
    ("freq", "expected"),
    [
        ("h", "h"), ("15min", "15min"), ("30s", "30s"), ("6h", "6h"), ("D", "D"), ("2D", "2D"), ("B", "B"),
        ("W", "7D"), ("W-WED", "7D"), ("14D", "14D"), ("MS", "MS"), ("ME", "ME"), ("QS", "3MS"), ("QE", "3ME"),
        ("2MS", "2MS"), ("6MS", "6MS"), ("YS", "12MS"), ("YE", "12ME"), ("YS-JUL", "12MS"),
    ],
)  # fmt: skip
def test_frequencies_are_found_and_go_on_as_they_began(freq, expected):
    times = pd.date_range("2020-01-06", periods=40, freq=freq)
    clock = inferred(times[:30])
    assert clock.freq == expected
    assert clock.ahead(instants(times[29:30]), 10)[0].tolist() == instants(times[30:]).tolist()


@pytest.mark.parametrize("months", [1, 2, 3, 6, 12])
def test_days_within_a_month_go_on_by_months(months):
    times = [pd.Timestamp("2019-01-15") + pd.DateOffset(months=months * i) for i in range(30)]
    clock = inferred(times[:24])
    assert clock.freq == f"{months} months"
    assert clock.ahead(instants(times[23:24]), 6)[0].tolist() == instants(times[24:]).tolist()


def test_a_few_gaps_do_not_hide_the_step():
    times = pd.date_range("2024-01-01", periods=100, freq="h")[np.r_[0:30, 35:60, 62:100]]
    assert inferred(times).freq == "h"
    months = pd.date_range("2015-01-01", periods=60, freq="MS").delete([7, 20])
    assert inferred(months).freq == "MS"
    days = pd.bdate_range("2024-01-01", periods=60).delete([10, 11])
    assert inferred(days).freq == "B"


def test_a_week_that_holds_a_weekend_is_of_all_days():
    assert inferred(pd.date_range("2024-01-01", periods=14)).freq == "D"
    assert inferred(pd.date_range("2024-01-01", periods=4)).freq == "D"  # Monday to Thursday: too few to tell


def test_irregular_times_have_their_most_common_step():
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum([0, 5, 5, 7, 5, 90, 5, 11]), unit="min")
    assert inferred(times).freq == "5min"


def test_the_way_from_one_series_to_the_next_is_no_step():
    times = np.concatenate([instants(pd.date_range("2024-01-01", periods=3, freq="h"))] * 5)
    clock = Clock.infer(times, np.arange(0, 16, 3), None, dates=True)
    assert clock.freq == "h"
    single = Clock.infer(instants(["2024-01-01"] * 4), np.arange(5), None, dates=True)
    assert single.freq == "D"  # one row a series says nothing


def test_whole_numbers():
    clock = Clock.infer(np.array([5, 10, 15, 25]), np.array([0, 4]), None, dates=False)
    assert (clock.freq, clock.step, clock.dates) == ("5", 5.0, False)
    assert clock.ahead(np.array([25, 100]), 2).tolist() == [[30, 35], [105, 110]]
    assert (clock.season(), clock.cycles()) == (1, ())
    assert clock.index(np.array([1, 2])).tolist() == [1, 2]
    assert Clock.infer(np.array([3]), np.array([0, 1]), None, dates=False).freq == "1"


def test_the_length_of_a_step():
    for freq, days in (("h", 1 / 24), ("D", 1), ("7D", 7), ("MS", 30.44), ("ME", 30.44), ("12MS", 365.25), ("B", 1.4)):
        assert Clock(freq).step / DAY == pytest.approx(days, rel=0.01), freq


# ---- the times ahead


@pytest.mark.parametrize(
    ("freq", "last", "expected"),
    [
        ("ME", "2024-01-31", ["2024-02-29", "2024-03-31", "2024-04-30"]),
        ("ME", "2023-01-31", ["2023-02-28", "2023-03-31", "2023-04-30"]),
        ("MS", "2024-11-01", ["2024-12-01", "2025-01-01", "2025-02-01"]),
        ("1 months", "2024-01-15", ["2024-02-15", "2024-03-15", "2024-04-15"]),
        ("1 months", "2024-01-30", ["2024-02-29", "2024-03-30", "2024-04-30"]),
        ("3ME", "2024-03-31", ["2024-06-30", "2024-09-30", "2024-12-31"]),
        ("B", "2024-01-05", ["2024-01-08", "2024-01-09", "2024-01-10"]),
        ("7D", "2024-02-26", ["2024-03-04", "2024-03-11", "2024-03-18"]),
        ("D", "2024-02-28", ["2024-02-29", "2024-03-01", "2024-03-02"]),
        ("12MS", "2024-01-01", ["2025-01-01", "2026-01-01", "2027-01-01"]),
    ],
)
def test_steps_ahead_by_the_calendar(freq, last, expected):
    assert shown(Clock(freq), last, 3) == [f"{day} 00:00:00" for day in expected]


def test_hours_are_instants_and_days_are_local_where_the_clocks_change():
    hourly = Clock("h", zone="Europe/Berlin")
    assert shown(hourly, "2024-03-31 00:00", 3) == [
        "2024-03-31 01:00:00+01:00", "2024-03-31 03:00:00+02:00", "2024-03-31 04:00:00+02:00"
    ]  # fmt: skip
    assert shown(hourly, "2024-10-27 01:00", 3) == [
        "2024-10-27 02:00:00+02:00", "2024-10-27 02:00:00+01:00", "2024-10-27 03:00:00+01:00"
    ]  # fmt: skip
    daily = Clock("D", zone="Europe/Berlin")
    assert shown(daily, "2024-03-30", 3) == [
        "2024-03-31 00:00:00+01:00", "2024-04-01 00:00:00+02:00", "2024-04-02 00:00:00+02:00"
    ]  # fmt: skip
    assert shown(daily, "2024-03-30 02:30", 2) == ["2024-03-31 03:00:00+02:00", "2024-04-01 02:30:00+02:00"]
    assert shown(daily, "2024-10-26 02:30", 2) == ["2024-10-27 02:30:00+02:00", "2024-10-28 02:30:00+01:00"]


def test_local_days_and_months_are_found_where_the_clocks_change():
    days = pd.date_range("2024-01-01", periods=200, freq="D", tz="Europe/Berlin")
    clock = inferred(days[:150], "Europe/Berlin")
    assert clock.freq == "D"
    assert clock.ahead(instants(days[149:150]), 50)[0].tolist() == instants(days[150:]).tolist()
    months = pd.date_range("2020-01-01", periods=40, freq="MS", tz="America/New_York")
    clock = inferred(months[:30], "America/New_York")
    assert clock.freq == "MS"
    assert clock.ahead(instants(months[29:30]), 10)[0].tolist() == instants(months[30:]).tolist()


def test_every_series_goes_on_from_its_own_end():
    ahead = Clock("MS").ahead(instants(["2024-01-01", "2024-06-01"]), 2)
    assert ahead.tolist() == [
        instants(["2024-02-01", "2024-03-01"]).tolist(),
        instants(["2024-07-01", "2024-08-01"]).tolist(),
    ]


# ---- seasons and the calendar


@pytest.mark.parametrize(
    ("freq", "season"),
    [("15min", 96), ("30min", 48), ("h", 24), ("6h", 4), ("D", 7), ("B", 5), ("7D", 52), ("MS", 12), ("3MS", 4),
     ("12MS", 1), ("1 months", 12), ("min", 288)],
)  # fmt: skip
def test_seasons(freq, season):
    assert Clock(freq).season() == season


@pytest.mark.parametrize(
    ("freq", "cycles"),
    [("15min", ("day", "week", "year")), ("h", ("day", "week", "year")), ("D", ("week", "month", "year")),
     ("B", ("week", "month", "year")), ("7D", ("year",)), ("MS", ("year",)), ("12MS", ())],
)  # fmt: skip
def test_cycles(freq, cycles):
    assert Clock(freq).cycles() == cycles


def angles(clock: Clock, time: str, cycle: str) -> float:
    """The position in a cycle, as a share, from its first sine and cosine."""
    values = clock.calendar(instants([pd.Timestamp(time, tz=clock.zone)]), (cycle,))[0]
    return float(np.arctan2(values[0], values[1]) / (2 * np.pi) % 1)


@pytest.mark.parametrize(
    ("time", "cycle", "share"),
    [
        ("2024-05-01 00:00", "day", 0.0),
        ("2024-05-01 06:00", "day", 0.25),
        ("2024-05-01 18:00", "day", 0.75),
        ("2024-01-01", "week", 0.0),  # a Monday
        ("2024-01-03", "week", 2 / 7),
        ("2024-01-07 12:00", "week", 6.5 / 7),
        ("2024-02-01", "month", 0.0),
        ("2024-02-15", "month", 14 / 29),
        ("2023-02-15", "month", 0.5),
        ("2024-01-01", "year", 0.0),
        ("2023-07-02", "year", 182 / 365.25),
    ],
)
def test_positions_in_the_calendar(time, cycle, share):
    assert angles(Clock("h"), time, cycle) == pytest.approx(share, abs=1e-5)


def test_the_calendar_is_that_of_the_zone():
    for time in ("2024-01-15 06:00", "2024-07-15 06:00"):
        assert angles(Clock("h", zone="Asia/Tokyo"), time, "day") == pytest.approx(0.25, abs=1e-5)
        assert angles(Clock("h", zone="America/New_York"), time, "day") == pytest.approx(0.25, abs=1e-5)


def test_calendar_values_are_waves_without_a_seam():
    hours = instants(pd.date_range("2023-01-01", periods=24 * 800, freq="h"))
    clock = Clock("h")
    values = clock.calendar(hours, clock.cycles())
    assert values.dtype == np.float32
    np.testing.assert_allclose(values[:, 0::2] ** 2 + values[:, 1::2] ** 2, 1.0, atol=1e-5)
    day = clock.calendar(hours, ("day",))
    np.testing.assert_allclose(day[24:], day[:-24], atol=1e-4)
    assert np.abs(np.diff(clock.calendar(hours, ("week",)), axis=0)).max() < 0.2
    assert clock.calendar(hours, ()).shape == (len(hours), 0)
    repeated = np.repeat(hours[:5], 3)
    np.testing.assert_array_equal(clock.calendar(repeated, ("day",)), np.repeat(day[:5], 3, axis=0))


# ---- what users name


def test_instants_that_users_name():
    assert Clock("h").instant("2024-05-01") == instants(["2024-05-01"])[0]
    assert Clock("h").instant(pd.Timestamp("2024-05-01 07:30")) == instants(["2024-05-01 07:30"])[0]
    berlin = Clock("h", zone="Europe/Berlin")
    assert berlin.instant("2024-05-01") == instants(["2024-04-30 22:00"])[0]
    assert berlin.instant("2024-05-01T00:00Z") == instants(["2024-05-01"])[0]
    assert Clock("5", dates=False).instant(20) == 20


@pytest.mark.parametrize(
    ("clock", "value", "message"),
    [
        (Clock("h"), "later", "start='later': expected a share of the rows above 0 and below 1, or a date"),
        (Clock("h"), None, "start=None: expected a share"),
        (Clock("h"), 1.5, r"start=1\.5: expected a share"),
        (Clock("h"), pd.NaT, "start=NaT: expected a share"),
        (Clock("h"), "2024-05-01T00:00+02:00", "has a zone and the table's times have none: leave it out"),
        (Clock("1", dates=False), "x", "start='x': expected a share .*, or a whole number"),
        (Clock("1", dates=False), None, "start=None: expected a share .*, or a whole number"),
    ],
)
def test_instants_that_mean_nothing(clock, value, message):
    with pytest.raises(ValueError, match=message):
        clock.instant(value)


@pytest.mark.parametrize(
    ("freq", "dates", "expected"),
    [
        ("h", True, "h"),
        ("60min", True, "60min"),
        ("D", True, "D"),
        ("W", True, "W-SUN"),
        (5, False, "5"),
        ("5", False, "5"),
    ],
)
def test_named_frequencies(freq, dates, expected):
    assert Clock.named(freq, None, dates).freq == expected


@pytest.mark.parametrize(("freq", "dates"), [("hour", True), (object(), True), ("h", False), (0, False), (-2, False)])
def test_bad_frequencies(freq, dates):
    with pytest.raises(ValueError, match=r"freq=.*: expected a (pandas offset|whole number)"):
        Clock.named(freq, None, dates)


@pytest.mark.parametrize("freq", ["0h", "-1D"])
def test_time_must_go_on(freq):
    with pytest.raises(ValueError, match=f"freq='{freq}': expected"):
        Clock.named(freq, None, True)


# ---- holidays


def test_holidays_of_a_country():
    days = instants(["2024-07-03", "2024-07-04 15:00", "2024-07-04", "2024-12-25"])
    assert Clock("D").holidays(days, "US")[:, 0].tolist() == [0, 1, 1, 1]
    assert Clock("D").holidays(days, "DE")[:, 0].tolist() == [0, 0, 0, 1]
    evening = instants([pd.Timestamp("2024-07-04 20:00", tz="America/New_York")])  # the 5th in UTC
    assert Clock("h", zone="America/New_York").holidays(evening, "US").item() == 1


def test_holidays_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(ImportError, match=r"needs the library holidays: pip install 'itocast\[holidays\]'"):
        Clock("D").holidays(instants(["2024-07-04"]), "US")


def test_holidays_need_dates_and_a_country():
    with pytest.raises(ValueError, match="holidays='Atlantis': expected a country such as 'US', 'DE' or 'JP'"):
        Clock("D").holidays(instants(["2024-07-04"]), "Atlantis")
    with pytest.raises(ValueError, match="holidays='US' needs dates, and the table's times are whole numbers"):
        Clock("1", dates=False).holidays(np.array([1]), "US")


def test_where_no_step_is_common_the_middle_one_counts():
    steps = np.random.default_rng(0).exponential(1200e6, 500).astype(np.int64)  # 20 minutes on average
    clock = Clock.infer(np.cumsum(steps), np.array([0, 500]), None, dates=True)
    assert clock.step == pytest.approx(np.median(steps[1:]), rel=1e-6)
