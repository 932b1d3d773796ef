"""Named datasets."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd


class Source(NamedTuple):
    """A dataset: what it is, where it comes from, how it is read, and which of its columns is what."""

    title: str
    unit: str
    credit: str
    schema: dict[str, Any]
    read: Callable[[], pd.DataFrame]


def load(name: str) -> pd.DataFrame:
    """A dataset by name, as it was published.

    >>> len(load("metro"))
    48204
    """
    return _source(name).read()


def schema(name: str) -> dict[str, Any]:
    """Which columns of a dataset are what, as arguments of `Forecaster.fit`.

    >>> schema("metro")["target"]
    'traffic_volume'
    """
    return dict(_source(name).schema)


def _source(name: str) -> Source:
    if name not in DATASETS:
        raise ValueError(f"name={name!r}: expected one of {', '.join(DATASETS)}")
    return DATASETS[name]


def toy(seed: int = 0, rows: int = 1000) -> pd.DataFrame:
    """The synthetic problem of Sec. 5.1: columns x, y, and the true mean and noise deviation.

    x is uniform on [-30, 40] and y = 0.4 x sin x + 0.7 x cos(x / 2), with Gaussian noise of variance 0.0225 x² where
    x lies within [10, 20]. Rows are sorted by x.

    >>> toy(seed=0, rows=3).columns.tolist()
    ['x', 'y', 'mean', 'deviation']
    """
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(-30, 40, rows))
    mean = 0.4 * x * np.sin(x) + 0.7 * x * np.cos(x / 2)
    deviation = np.where((x >= 10) & (x <= 20), 0.15 * np.abs(x), 0.0)
    return pd.DataFrame(
        {"x": x, "y": mean + deviation * random.standard_normal(rows), "mean": mean, "deviation": deviation}
    )


def _metro() -> pd.DataFrame:
    with as_file(files("itocast.data") / "metro.csv.gz") as path:
        return pd.read_csv(path, keep_default_na=False)  # "None" is a word: no holiday


DATASETS: dict[str, Source] = {
    "metro": Source(
        "Metro Interstate Traffic Volume: hourly westbound traffic on I-94 near Minneapolis, 2012 to 2018",
        "vehicles per hour",
        "John Hogue, UCI Machine Learning Repository (2019), data set 492, doi 10.24432/C5X60B, CC BY 4.0",
        {"target": "traffic_volume", "time": "date_time", "past": ["temp", "rain_1h", "snow_1h", "clouds_all"]},
        _metro,
    ),
}
