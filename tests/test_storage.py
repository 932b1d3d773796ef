"""Saved models: what comes back, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest
import torch
from conftest import BUILD

from itocast import storage
from itocast.fitted import Fitted
from itocast.models import HNN
from itocast.storage import StorageError
from itocast.training import Training


@pytest.fixture
def fitted(build, table, parts, preparation):
    return Fitted.train(table, parts, preparation, build, Training(epochs=1))


@pytest.fixture
def folder(tmp_path):
    storage.save(tmp_path / "model", {"answer": 42}, {"weight": torch.arange(1000.0)})
    return tmp_path / "model"


def test_every_model_comes_back_with_the_same_forecasts(fitted, table, parts, tmp_path):
    fitted.save(tmp_path / "model")
    again = Fitted.load(tmp_path / "model")
    (law, y), (law_again, y_again) = (f.forecast(table, parts.test) for f in (fitted, again))
    assert torch.equal(law.means, law_again.means)
    assert torch.equal(law.log_variances, law_again.log_variances)
    assert torch.equal(y, y_again)
    assert again.history == fitted.history
    assert again.training == fitted.training
    assert again.parameters == fitted.parameters


def test_folder_holds_manifest_and_weights_alone(folder):
    assert sorted(os.listdir(folder)) == ["manifest.json", "weights.safetensors"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema"] == 1
    assert set(manifest["versions"]) == {"itocast", "torch", "python"}


def test_saving_over_an_older_model_replaces_it(folder):
    storage.save(folder, {"answer": 43}, {"weight": torch.zeros(3)})
    manifest, weights = storage.load(folder)
    assert manifest["answer"] == 43
    assert weights["weight"].tolist() == [0, 0, 0]
    assert sorted(os.listdir(folder)) == ["manifest.json", "weights.safetensors"]


@pytest.mark.parametrize("stop", ["weights.safetensors.next", "manifest.json", "rename"])
def test_a_save_that_is_cut_short_leaves_one_whole_model(folder, monkeypatch, stop):
    real = os.replace

    def replace(source, target):
        if str(target).endswith(stop) or (stop == "rename" and str(source).endswith(".next")):
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        storage.save(folder, {"answer": 43}, {"weight": torch.zeros(3)})
    manifest, weights = storage.load(folder)
    assert (manifest["answer"], weights["weight"].numel()) in {(42, 1000), (43, 3)}
    assert manifest["answer"] == (43 if stop == "rename" else 42)


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), "holds no manifest.json: it is not a saved model"),
        (lambda f: (f / "weights.safetensors").unlink(), "weights.safetensors is missing: copy it"),
        (lambda f: os.truncate(f / "manifest.json", 100), "manifest.json is cut short or damaged: it is not JSON"),
        (lambda f: os.truncate(f / "manifest.json", 0), "manifest.json is cut short or damaged"),
        (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe\0"), "manifest.json is cut short or damaged"),
        (lambda f: (f / "manifest.json").write_text("[1, 2]"), "was not written by itocast"),
        (lambda f: (f / "manifest.json").write_text('{"name": "other"}'), "was not written by itocast"),
        (lambda f: edit(f / "manifest.json", schema=2), "has schema 2; itocast .* reads up to 1: upgrade itocast"),
        (lambda f: edit(f / "manifest.json", answer=43), "is damaged or was edited: its content does not fit its hash"),
        (lambda f: os.truncate(f / "weights.safetensors", 999), r"has 999 of 4,\d+ bytes: it was cut short"),
        (lambda f: flip(f / "weights.safetensors", -1), "is damaged or of another model"),
        (lambda f: flip(f / "weights.safetensors", 3), "is damaged or of another model"),
        (lambda f: (f / "weights.safetensors").write_bytes(b"PK" * 9999), "is damaged or of another model"),
    ],
)
def test_harmed_folders_are_refused_with_the_reason(folder, harm, message):
    harm(folder)
    with pytest.raises(StorageError, match=message):
        storage.load(folder)


def test_every_flipped_bit_of_the_manifest_is_noticed(folder):
    path = folder / "manifest.json"
    sound, clean = path.read_bytes(), storage.load(folder)[0]
    for place in range(0, len(sound), 7):
        flip(path, place)
        try:
            manifest, _ = storage.load(folder)
        except StorageError:
            pass
        else:
            assert manifest == clean  # white space
        path.write_bytes(sound)


def test_no_such_folder(tmp_path):
    with pytest.raises(StorageError, match="holds no manifest"):
        Fitted.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("part", "change"), [("model", {"kind": "oracle"}), ("model", {"config": {"depth": 3}}), ("training", {"rate": 1})]
)
def test_a_model_of_another_version_is_refused(table, parts, preparation, tmp_path, part, change):
    fitted = Fitted.train(table, parts, preparation, BUILD["hnn"], Training(epochs=1))
    fitted.save(tmp_path)
    manifest, weights = storage.load(tmp_path)
    manifest[part] |= change
    kept = ("preparation", "model", "training", "history", "seed")
    storage.save(tmp_path, {key: manifest[key] for key in kept}, weights)
    with pytest.raises(StorageError, match=r"was written by itocast .* and does not fit itocast"):
        Fitted.load(tmp_path)


def test_unregistered_models_are_not_saved(table, parts, preparation, tmp_path):
    class Mine(HNN):
        pass

    fitted = Fitted.train(table, parts, preparation, BUILD["hnn"], Training(epochs=1))
    fitted.model.__class__ = Mine
    with pytest.raises(ValueError, match=r"Mine cannot be saved: add it to itocast\.models\.MODELS"):
        fitted.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_file_is_no_folder(fitted, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is a file: name a folder"):
        fitted.save(tmp_path / "file")


def test_the_rows_after_the_table_are_forecast_as_if_they_were_in_it(fitted, table):
    """The law ahead of a shortened table is that of the same rows in the whole one; their values play no part."""
    short = dataclasses.replace(table, frame=table.frame[:-3])
    ahead = fitted.ahead(short)
    inside, _ = fitted.forecast(table, range(len(table) - 3, len(table)))
    assert ahead.shape == inside.shape == (1, 3, 2)
    torch.testing.assert_close(ahead.means, inside.means)
    with pytest.raises(ValueError, match="table has 3 rows: expected at least the window, 4"):
        fitted.ahead(dataclasses.replace(table, frame=table.frame[:3]))


def test_a_model_in_the_place_of_its_class_is_refused(table, parts, preparation):
    with pytest.raises(TypeError, match="build is a model: expected what makes one"):
        Fitted.train(table, parts, preparation, HNN(preparation.sizes))
