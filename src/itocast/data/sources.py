"""Named datasets: one entry each in `DATASETS`, at the end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from itocast.data import download, files
from itocast.data.files import Published

Schema = dict[str, Any]


class Source(NamedTuple):
    """A dataset: what it is, whom to credit, its rows and columns, which column is what, and the published file.

    `schema` holds arguments of `Forecaster.fit`, or is a function of the frame where they follow from it. `packaged`
    is the file in the package, if there is one.
    """

    title: str
    unit: str
    credit: str
    size: tuple[int, int]
    schema: Schema | Callable[[pd.DataFrame], Schema]
    file: Published
    packaged: Path | None = None


class Dataset(NamedTuple):
    """An opened dataset: its rows, which column is what, the file, whether that is the published one, and its hash."""

    frame: pd.DataFrame
    schema: Schema
    file: Path
    published: bool
    digest: str


class NotPublished(UserWarning):
    """A file is used that is not the one its authors published."""


def load(name: str, data_dir: str | Path | None = None) -> pd.DataFrame:
    """A dataset by name, as it was published.

    Its file is looked for in `data_dir`, then in the cache, and downloaded if it is in neither. A file under another
    name is chosen with "name=file", a path from `data_dir`.

    >>> len(load("metro"))
    48204
    """
    return _open(name, data_dir).frame


def schema(name: str, data_dir: str | Path | None = None) -> Schema:
    """Which columns of a dataset are what, as arguments of `Forecaster.fit`.

    >>> schema("metro")["target"]
    'traffic_volume'
    """
    fixed = source_of(name).schema
    return _open(name, data_dir).schema if callable(fixed) else deepcopy(fixed)


def open_dataset(name: str, data_dir: str | Path | None = None) -> Dataset:
    """A dataset with its schema, and where it comes from.

    >>> metro = open_dataset("metro")
    >>> metro.published, metro.digest[:14]
    (True, 'sha256:749c90d')
    """
    return _open(name, data_dir)


def source_of(name: str) -> Source:
    """What there is to know of a dataset, without its rows.

    >>> source_of("metro").unit
    'vehicles per hour'
    """
    key = name.partition("=")[0]
    if key not in DATASETS:
        raise ValueError(f"name={name!r}: expected one of {', '.join(DATASETS)}")
    return DATASETS[key]


def where(name: str, data_dir: str | Path | None = None) -> str:
    """Where the file of a dataset is, in a few words; nothing is downloaded.

    >>> where("metro")
    'in the package'
    """
    source, folder = source_of(name), Path(data_dir) if data_dir else None
    if source.packaged:
        return "in the package"
    try:
        if folder and (files.find(source.file, name, folder) or files.find_other(source.file, name, folder)):
            return f"in {folder}"
    except ValueError:
        return f"several files in {folder}"
    if files.find(source.file, name, download.cache_folder()):
        return "in the cache"
    return "to be downloaded" if source.file.address else "by hand"


def toy(seed: int = 0, rows: int = 1000) -> pd.DataFrame:
    """The synthetic problem of Sec. 5.1: columns x, y, and the true mean and noise deviation.

    x is uniform on [-30, 40] and y = 0.4 x sin x + 0.7 x cos(x / 2), with Gaussian noise of variance 0.0225 x² where
    x lies within [10, 20]. Rows are sorted by x.

    >>> toy(seed=0, rows=3).columns.tolist()
    ['x', 'y', 'mean', 'deviation']
    """
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(-30, 40, rows))
    mean, deviation = toy_truth(x)
    return pd.DataFrame(
        {"x": x, "y": mean + deviation * random.standard_normal(rows), "mean": mean, "deviation": deviation}
    )


def toy_truth(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The true mean of the toy problem and the deviation of its noise.

    >>> toy_truth(np.array([0.0, 10.0, 20.0, 21.0]))[1].tolist()
    [0.0, 1.5, 3.0, 0.0]
    """
    noisy = (x >= 10) & (x <= 20)
    return 0.4 * x * np.sin(x) + 0.7 * x * np.cos(x / 2), np.where(noisy, 0.15 * np.abs(x), 0.0)


def size_text(size: tuple[int, int]) -> str:
    """Rows and columns.

    >>> size_text((48204, 9))
    '48,204 × 9'
    """
    return f"{size[0]:,} × {size[1]}"


def _open(name: str, data_dir: str | Path | None) -> Dataset:
    source = source_of(name)
    name, _, file = name.partition("=")
    path = _locate(name, file, Path(data_dir) if data_dir else None)
    text, digest = files.read(path, source.file)
    frame = files.table(text, path)
    columns = deepcopy(source.schema(frame) if callable(source.schema) else source.schema)
    named = [column for value in columns.values() for column in ([value] if isinstance(value, str) else value or ())]
    missing = [column for column in named if column not in frame]
    if missing:
        raise ValueError(
            f"{path} is not a file of {name}: it has no column {', '.join(missing)}; get {source.file.name} from "
            f"{source.file.page}, or name another file, as in '{name}=file.csv'"
        )
    if digest != source.file.check:
        unpacked = source.file.name.endswith(".gz") and path.suffix != ".gz"
        warnings.warn(
            f"{path} ({size_text(frame.shape)}) {'cannot be shown to be' if unpacked else 'is not'} the published "
            f"{source.file.name} ({size_text(source.size)}): results may not hold for the dataset",
            NotPublished,
            stacklevel=3,
        )
    return Dataset(frame, columns, path, digest == source.file.check, digest)


def _locate(name: str, file: str, folder: Path | None) -> Path:
    """The file that is named, or the first one that is found; downloaded if need be."""
    source = DATASETS[name]
    if file:
        path = (folder or Path()) / file
        if not path.is_file():
            raise FileNotFoundError(f"name='{name}={file}': there is no file {path}; give its path from data_dir")
        return path
    if source.packaged:
        return source.packaged
    found = folder and (files.find(source.file, name, folder) or files.find_other(source.file, name, folder))
    found = found or files.find(source.file, name, download.cache_folder())
    return found or download.download(source.file, name, folder)


def _all_targets(frame: pd.DataFrame) -> Schema:
    """Every column is a target, but for a first one that is not of numbers: the time."""
    columns = frame.columns.tolist()
    timed = not pd.api.types.is_numeric_dtype(frame.dtypes.iloc[0])
    return {"target": columns[timed:], "time": columns[0] if timed else None}


def _index(frame: pd.DataFrame) -> Schema:
    """The index is the target, its stocks are known up to now."""
    return {"target": "NDX", "time": None, "past": [column for column in frame if column != "NDX"]}


def _lstnet(file: str, check: str) -> Published:
    """A file of the repository that belongs to Lai et al. 2018."""
    folder, _, name = file.partition("/")
    repository = "laiguokun/multivariate-time-series-data"
    return Published(
        name, check, f"https://github.com/{repository}/tree/master/{folder}",
        f"https://raw.githubusercontent.com/{repository}/master/{file}",
    )  # fmt: skip


_LSTNET = 'Lai et al. 2018, "Modeling Long- and Short-Term Temporal Patterns with Deep Neural Networks"'
_DARNN = "hrj04/DARNN", "e18ba487b4a1e4a3beba0b8e01bd692e95142239"

DATASETS: dict[str, Source] = {
    "metro": Source(
        "Metro Interstate Traffic Volume: hourly westbound traffic on I-94 near Minneapolis, 2012 to 2018",
        "vehicles per hour",
        "John Hogue, UCI Machine Learning Repository (2019), data set 492, doi 10.24432/C5X60B, CC BY 4.0",
        (48204, 9),
        {"target": "traffic_volume", "time": "date_time", "past": ["temp", "rain_1h", "snow_1h", "clouds_all"]},
        Published(
            "Metro_Interstate_Traffic_Volume.csv",
            "sha256:749c90d720360a4215bb15345526073c079ba4cc95e3fa558796d083f85fce9e",
            "https://doi.org/10.24432/C5X60B",
        ),
        packaged=Path(__file__).with_name("metro.csv.gz"),
    ),
    "pickups": Source(
        "Uber pickups in New York City by borough, hourly, with weather and holidays, January to June 2015",
        "pickups per hour",
        "Yannis Pappas, Kaggle, NYC Uber Pickups with Weather and Holidays; licence not stated",
        (29101, 13),
        {
            "target": "pickups",
            "time": "pickup_dt",
            "id": "borough",
            "future": ["hday"],
            "past": ["spd", "vsb", "temp", "dewp", "slp", "pcp01", "pcp06", "pcp24", "sd"],
        },
        Published(
            "uber_nyc_enriched.csv",
            "sha256:ebbc246868128926f6e91e49b24ae2d9b181894451fbb8b02556ee42bb9fa7cd",
            "https://www.kaggle.com/datasets/yannisp/uber-pickups-enriched",
        ),
    ),
    "stock": Source(
        "NASDAQ 100: the index and 81 of its stocks, every minute, July to December 2016",
        "index points",
        'Qin et al. 2017, "A Dual-Stage Attention-Based Recurrent Neural Network for Time Series Prediction"; '
        "licence not stated",
        (40560, 82),
        _index,
        Published(
            "nasdaq100_padding.csv",
            "git:40ed88ef1d2b30d6b4bef6d2b6f248bb5fbba01f",
            "https://github.com/{}/tree/{}/data".format(*_DARNN),
            "https://raw.githubusercontent.com/{}/{}/data/nasdaq100_padding.csv".format(*_DARNN),
        ),
    ),
    "electricity": Source(
        "Electricity: hourly consumption of 321 clients in Portugal, 2012 to 2014",
        "kWh",
        f"{_LSTNET}, from UCI ElectricityLoadDiagrams20112014; licence not stated",
        (26304, 321),
        _all_targets,
        _lstnet("electricity/electricity.txt.gz", "git:df158a9fff65428ece107200432a72c992d5e4e9"),
    ),
    "solar": Source(
        "Solar: power of 137 photovoltaic plants in Alabama, every 10 minutes of 2006",
        "MW",
        f"{_LSTNET}, from the solar power data of the National Renewable Energy Laboratory; licence not stated",
        (52560, 137),
        _all_targets,
        _lstnet("solar-energy/solar_AL.txt.gz", "git:08a1f235546b3708309ff4fb544a54bb82e4f5e7"),
    ),
    "traffic": Source(
        "Traffic: hourly occupancy of roads at 862 sensors around San Francisco, 2015 to 2016",
        "road occupancy rate (a share, 0 to 1)",
        f"{_LSTNET}, from PeMS of the California Department of Transportation; licence not stated",
        (17544, 862),
        _all_targets,
        _lstnet("traffic/traffic.txt.gz", "git:63ddb74bf7602568f36056a0b1a47aa407f0a6fe"),
    ),
}
