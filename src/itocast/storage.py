"""A fitted model as a folder: manifest.json and weights.safetensors, written whole and checked when read.

The manifest holds the hashes of the weights and of itself. Nothing that is read is run: no pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

SCHEMA = 1
MANIFEST, WEIGHTS, NEXT = "manifest.json", "weights.safetensors", "weights.safetensors.next"


class StorageError(ValueError):
    """A file is not what it should be."""


def save(folder: str | Path, settings: dict[str, Any], weights: dict[str, Tensor]) -> None:
    """Write settings (plain values) and weights to a folder, over an older model if there is one.

    The new weights are written beside the old ones, then the manifest is replaced, then the weights: whenever that
    is cut short, `load` finds one whole model.
    """
    folder = Path(folder)
    check_folder(folder)
    content = to_bytes({name: tensor.contiguous() for name, tensor in weights.items()})
    manifest = {
        "format": "itocast",
        "schema": SCHEMA,
        "versions": versions(),
        "weights": {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)},
        **settings,
    }
    manifest["sha256"] = _digest(manifest)
    write_bytes(folder / NEXT, content)
    write_bytes(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    os.replace(folder / NEXT, folder / WEIGHTS)


def versions() -> dict[str, str]:
    """Of what a model and its figures depend on."""
    return {"itocast": version("itocast"), "torch": torch.__version__, "python": platform.python_version()}


def pack(settings: Any, name: str, weights: dict[str, Tensor]) -> Any:
    """Settings whose tensors were moved to `weights`, each under the path that leads to it."""
    if isinstance(settings, Tensor):
        weights[name] = settings
        return {"tensor": name}
    if isinstance(settings, dict):
        return {key: pack(value, f"{name}/{key}", weights) for key, value in settings.items()}
    return settings


def unpack(settings: Any, weights: dict[str, Tensor]) -> Any:
    """The settings that `pack` was given."""
    if not isinstance(settings, dict):
        return settings
    if list(settings) == ["tensor"]:
        return weights[settings["tensor"]]
    return {key: unpack(value, weights) for key, value in settings.items()}


def check_folder(folder: Path) -> None:
    """Refuse what cannot become a folder, so that a run can do so before its work."""
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"folder={str(folder)!r} is a file: name a folder")


def load(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Manifest and weights of a folder that `save` wrote, or a StorageError that says what is wrong."""
    folder = Path(folder)
    manifest = _read_manifest(folder / MANIFEST)
    stated = manifest["weights"]
    files = [path for path in (folder / WEIGHTS, folder / NEXT) if path.is_file()]
    if not files:
        raise StorageError(f"{folder / WEIGHTS} is missing: copy it from where the model was saved, or fit again")
    for path in files:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() == stated["sha256"]:
            return manifest, from_bytes(content)
    size = files[0].stat().st_size
    if size < stated["bytes"]:
        raise StorageError(f"{files[0]} has {size:,} of {stated['bytes']:,} bytes: it was cut short; copy it again")
    raise StorageError(
        f"{files[0]} is damaged or of another model: its hash is not the manifest's; copy both files again"
    )


def other_version(folder: str | Path, manifest: dict[str, Any], error: Exception) -> StorageError:
    """What to raise where a whole and sound model does not fit the code that reads it."""
    written, here = manifest["versions"]["itocast"], version("itocast")
    return StorageError(
        f"{folder} was written by itocast {written} and does not fit itocast {here} "
        f"({type(error).__name__}: {error}): use the version that wrote it"
    )


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise StorageError(f"{path.parent}: there is no such folder; name the one given to save")
    if not path.is_file():
        raise StorageError(f"{path.parent} holds no {MANIFEST}: it is not a saved model; name the folder given to save")
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError:
        raise StorageError(f"{path} is cut short or damaged: it is not JSON; copy it again") from None
    if not isinstance(manifest, dict) or manifest.get("format") != "itocast":
        raise StorageError(f"{path} was not written by itocast: name the folder of a saved model")
    if not isinstance(manifest.get("schema"), int) or manifest["schema"] > SCHEMA:
        raise StorageError(
            f"{path} has schema {manifest.get('schema')}; itocast {version('itocast')} reads up to {SCHEMA}: "
            "upgrade itocast to the version that wrote it"
        )
    if manifest.pop("sha256", None) != _digest(manifest):
        raise StorageError(f"{path} is damaged or was edited: its content does not fit its hash; copy it again")
    return manifest


def _digest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a part."""
    with beside(path) as file:
        file.write(content)


@contextmanager
def beside(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to that takes the place of `path` once all is written; if that fails, nothing is left of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_checkpoint(path: Path, tensors: dict[str, Tensor], notes: dict[str, Any]) -> None:
    """Tensors and plain values in one file, followed by its hash."""
    content = to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()}, {"itocast": json.dumps(notes)})
    write_bytes(path, content + hashlib.sha256(content).digest())


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_checkpoint` wrote."""
    content, digest = path.read_bytes()[:-32], path.read_bytes()[-32:]
    if hashlib.sha256(content).digest() != digest:
        raise StorageError(f"{path} is not a checkpoint, or is damaged: delete it to start anew")
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return from_bytes(content), json.loads(header["__metadata__"]["itocast"])
