"""Named datasets."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from itocast import Data, datasets
from itocast.data.reading import read_table
from itocast.data.table import Columns


def test_metro_is_the_published_file():
    content = gzip.decompress((files("itocast.data") / "metro.csv.gz").read_bytes())
    assert len(content) == 3_237_208
    assert hashlib.sha256(content).hexdigest() == "749c90d720360a4215bb15345526073c079ba4cc95e3fa558796d083f85fce9e"


def test_metro_keeps_its_rows_and_words():
    metro = datasets.load("metro")
    assert len(metro) == 48204
    assert metro["holiday"].eq("None").sum() == 48143
    assert metro["date_time"].duplicated().sum() == 7629
    assert metro["date_time"].is_monotonic_increasing


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_every_dataset_says_what_it_is_and_can_be_read_by_its_schema(name):
    source = datasets.DATASETS[name]
    assert source.title
    assert source.unit
    assert source.credit
    frame, schema = datasets.load(name), datasets.schema(name)
    assert len(frame) > 1000
    columns = Columns(
        id=schema.get("id"), time=schema["time"], targets=(schema["target"],),
        **{part: tuple(schema.get(part, ())) for part in ("past", "future", "static")},
    )  # fmt: skip
    table = read_table(frame, columns, repeated="keep", gaps="keep")
    assert len(table) == len(frame)


def test_a_schema_is_the_callers_own():
    datasets.schema("metro")["target"] = "clouds_all"
    assert datasets.schema("metro")["target"] == "traffic_volume"


def test_unknown_dataset_is_refused_with_the_known_ones():
    for ask in (datasets.load, datasets.schema):
        with pytest.raises(ValueError, match="name='metr': expected one of metro"):
            ask("metr")


def test_toy_follows_its_formula():
    toy = datasets.toy(seed=3)
    quiet = ~toy["x"].between(10, 20)
    assert len(toy) == 1000
    assert toy["x"].between(-30, 40).all()
    np.testing.assert_allclose(
        toy["y"][quiet], (0.4 * toy["x"] * np.sin(toy["x"]) + 0.7 * toy["x"] * np.cos(toy["x"] / 2))[quiet]
    )
    noise = (toy["y"] - toy["mean"])[~quiet] / (0.15 * toy["x"][~quiet])
    assert abs(noise.std() - 1) < 0.2
    pd.testing.assert_frame_equal(toy, datasets.toy(seed=3))
    assert not toy["y"].equals(datasets.toy(seed=4)["y"])


def test_settings_of_reading_have_a_word_each():
    assert all(field.description for field in Data.model_fields.values())
