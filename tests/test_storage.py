"""Saved models: what comes back, and what is refused."""

from __future__ import annotations

import json
import os

import pytest
import torch
from conftest import tiny, wave_frame

from itocast import Forecaster, folders, storage
from itocast.models import HNN
from itocast.storage import StorageError


@pytest.fixture
def fitted(build):
    return tiny(model=build).fit(wave_frame(), target=["load", "price"], time="time", past=["heat"]).fitted


@pytest.fixture
def folder(tmp_path):
    storage.save(tmp_path / "model", {"answer": 42}, {"weight": torch.arange(1000.0)})
    return tmp_path / "model"


def test_every_model_comes_back_with_the_same_forecasts(fitted, table, tmp_path):
    folders.save(fitted, tmp_path / "model")
    again = folders.load(tmp_path / "model")
    law, law_again = (f.law(f.preparation.windows(table)) for f in (fitted, again))
    for part in ("mean", "aleatoric", "epistemic"):
        assert torch.equal(getattr(law, part), getattr(law_again, part))
    assert torch.equal(law.quantile([0.01, 0.3, 0.9]), law_again.quantile([0.01, 0.3, 0.9]))
    assert again.history == fitted.history
    assert again.parameters == fitted.parameters
    assert again.preparation.to_dict() == fitted.preparation.to_dict()
    for name in ("steps", "targets"):
        assert torch.equal(getattr(again.dependence, name), getattr(fitted.dependence, name))


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
    with pytest.raises(StorageError, match="there is no such folder"):
        folders.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("network", {"kind": "oracle"}),
        ("network", {"config": {"depth": 3}}),
        ("recipe", {"support": "circle"}),
        ("recipe", {"loss": "mse"}),
        ("preparation", {"window": None, "lookback": 3}),
    ],
)
def test_a_model_of_another_version_is_refused(single, tmp_path, part, change):
    single[1].save(tmp_path)
    manifest, weights = storage.load(tmp_path)
    manifest[part] |= change
    own = ("format", "schema", "versions", "weights", "sha256")
    storage.save(tmp_path, {key: value for key, value in manifest.items() if key not in own}, weights)
    with pytest.raises(StorageError, match=r"was written by itocast .* and does not fit itocast"):
        folders.load(tmp_path)


def test_a_model_without_a_tensor_is_refused(single, tmp_path):
    single[1].save(tmp_path)
    manifest, weights = storage.load(tmp_path)
    own = ("format", "schema", "versions", "weights", "sha256")
    del weights["dependence/steps"]
    storage.save(tmp_path, {key: value for key, value in manifest.items() if key not in own}, weights)
    with pytest.raises(StorageError, match=r"was written by itocast .* and does not fit itocast"):
        folders.load(tmp_path)


def test_unregistered_models_are_not_saved(single, tmp_path):
    class Mine(HNN):
        pass

    forecaster = tiny(model=Mine).fit(single[0])
    with pytest.raises(ValueError, match=r"Mine cannot be saved: add it to itocast\.models\.MODELS"):
        forecaster.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_file_is_no_folder(single, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is a file: name a folder"):
        single[1].save(tmp_path / "file")


def test_a_model_in_the_place_of_its_class_is_refused(rows):
    with pytest.raises(TypeError, match="model is a model: expected a name, or what makes one"):
        Forecaster(model=HNN(rows[0].sizes))
