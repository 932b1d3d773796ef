"""From a fitted model to a file: traced, compared with PyTorch, described, written."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from itocast.clipped import SUPPORTS
from itocast.data.clock import YEAR
from itocast.data.preparation import NoWindows, Preparation
from itocast.data.table import Table
from itocast.data.windows import Windows
from itocast.export.contract import Arrays, arrays_of, description
from itocast.export.graph import Graph
from itocast.fitted import Fitted
from itocast.models import MODELS
from itocast.storage import write_bytes

EXPORTED = ("sde_hnn", "hnn", "mc_dropout", "deep_ensemble", "sde_net")
OUTPUTS = ("mean", "aleatoric", "epistemic", "quantiles")
TOLERANCE = 1e-4  # of a number, or of the law's deviation where that is more
OF_PRIOR = 1e-3  # the same where the prior takes part: its transformer is in single precision
VARIANTS = 12  # of the last rows that are forecast for comparison, other values at other times
ROWS = 64  # of each at most
OPSET = 20


class ExportError(ValueError):
    """A model cannot become a graph, or the graph is not the model."""


def write(fitted: Fitted, path: Path, levels: list[float]) -> dict[str, Any]:
    """Trace, compare, write beside and rename."""
    if not levels:
        raise ValueError("levels is empty: expected at least one probability, such as 0.5")
    fitted = newest(fitted)
    if fitted.net is not None:
        _check_model(fitted.net.model)
    onnx = _library()
    samples = list(_samples(fitted))
    graph = Graph(fitted, levels)
    proto = _trace(graph, samples[0][0])
    described = description(fitted) | {
        "format": "itocast", "itocast": version("itocast"), "levels": levels,
        "outputs": {
            "mean": "(rows, horizon, targets), in the table's units, as all outputs",
            "aleatoric": "(rows, horizon, targets): standard deviation of the noise in the data",
            "epistemic": "(rows, horizon, targets): standard deviation of what the model does not know",
            "quantiles": "(rows, horizon, targets, levels)",
        },
    }  # fmt: skip
    described["difference"] = _compare(fitted, proto.SerializeToString(), samples, levels)
    onnx.helper.set_model_props(proto, {"itocast": json.dumps(described)})
    proto.producer_name, proto.producer_version = "itocast", version("itocast")
    write_bytes(path, proto.SerializeToString())
    return described


def newest(fitted: Fitted) -> Fitted:
    """The model and its correction as they are now, whatever rows they learned from."""
    net = None if fitted.net is None else replace(fitted.net, stages=[])
    return replace(fitted, net=net, folds=[], edges=[])


def _check_model(model: nn.Module) -> None:
    name = next((name for name, kind in MODELS.items() if type(model) is kind), type(model).__name__)
    if name not in EXPORTED:
        raise ExportError(
            f"model {name} cannot be exported: expected one of {', '.join(EXPORTED)}; fit one of these, or forecast "
            "with itocast itself"
        )


def _library() -> Any:
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(f"export needs {error.name}: pip install 'itocast[onnx]'") from None
    return onnx


def _trace(graph: Graph, arrays: Arrays) -> Any:
    """The graph as a model of ONNX whose number of rows is free."""
    some = tuple(torch.from_numpy(np.repeat(array[:1], 3, axis=0)) for array in arrays.values())
    quiet = logging.getLogger("torch.onnx"), logging.getLogger("onnxscript"), logging.getLogger("onnx_ir")
    before = [log.level for log in quiet]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries among one another
        for log in quiet:
            log.setLevel(logging.ERROR)
        try:
            graph(*some)  # draws the noise
            rows = torch.export.Dim("rows", min=1)
            program = torch.onnx.export(
                graph, some, dynamo=True, opset_version=OPSET,
                dynamic_shapes={"arrays": tuple({0: rows} for _ in some)}, verbose=False,
                custom_translation_table={torch.ops.aten.asinh.default: _asinh}, optimize=False,
            )  # fmt: skip
            assert program is not None
            _simplify(program.model)
        finally:
            for log, level in zip(quiet, before, strict=True):
                log.setLevel(level)
    return _named(program.model_proto, list(arrays))


def _simplify(model: Any) -> None:
    """Compute what is constant, and no more: a whole `optimize` drops 1e-9 as if it were 0."""
    from onnxscript import optimizer

    optimizer.inline(model)
    optimizer.fold_constants(model)
    optimizer.remove_unused_nodes(model)


def _asinh(x: Any) -> Any:
    """In single precision: ONNX Runtime has no other."""
    from onnxscript import FLOAT, opset20

    op: Any = opset20
    return op.CastLike(op.Asinh(op.Cast(x, to=FLOAT.dtype)), x)


def _named(proto: Any, inputs: list[str]) -> Any:
    """The same model with the names of its inputs and outputs, and numbers for all that is between."""
    graph = proto.graph
    names = dict(zip((value.name for value in graph.input), inputs, strict=True))
    names |= dict(zip((value.name for value in graph.output), OUTPUTS, strict=True))
    for value in [*(value.name for value in graph.initializer), *(name for node in graph.node for name in node.output)]:
        names.setdefault(value, f"v{len(names)}")
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names[value.name]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        del node.metadata_props[:]
        node.doc_string = ""
    del graph.value_info[:]
    return proto


def _samples(fitted: Fitted) -> Iterator[tuple[Arrays, Windows]]:
    """Rows to compare: the last ones of the model as they are, then with other values and at other times."""
    random = np.random.default_rng(0)
    context, preparation = fitted.context, fitted.preparation
    most = 9000 if not context.clock.dates else min(9000, int(30 * YEAR / context.clock.step))  # steps away from now
    scale = np.array([preparation.scales[label][1] for label in context.ids.tolist()])[context.series]
    for variant in range(VARIANTS + 1):
        table = context
        if variant:
            y = context.y + random.choice([0.1, 0.5, 2.0]) * scale * random.standard_normal(context.y.shape)
            y = y.clip(*SUPPORTS[fitted.support])
            values = context.values | {name: y[:, i] for i, name in enumerate(context.columns.targets)}
            later = np.full(len(context), int(random.integers(1, most + 1)))
            table = replace(context, values=values, times=context.clock.after(context.times, later))
        windows, table = _windows(preparation, table)
        yield arrays_of(fitted, table, windows, preparation), windows


def _windows(preparation: Preparation, table: Table) -> tuple[Windows, Table]:
    """Forecasts that can be checked, or else those ahead, and the table of their rows."""
    try:
        return preparation.windows(table).thin(ROWS), table
    except NoWindows:
        if preparation.columns.future:
            raise ExportError(
                "the model keeps too few rows to compare the graph with PyTorch: update it with newer rows first"
            ) from None
        windows, whole = preparation.ahead(table)
        return windows.thin(ROWS), whole


def _compare(fitted: Fitted, content: bytes, samples: list[tuple[Arrays, Windows]], levels: list[float]) -> float:
    """The largest difference between what ONNX Runtime makes of the graph and PyTorch of the model."""
    from onnxruntime import InferenceSession

    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    worst, tolerance = 0.0, OF_PRIOR if fitted.zero_shot else TOLERANCE
    for arrays, windows in samples:
        law = fitted.law(windows)
        deviation = law.variance.double().sqrt()
        expected = (law.mean, law.aleatoric.sqrt(), law.epistemic.sqrt(), law.quantile(levels).movedim(0, -1))
        for name, theirs, ours in zip(OUTPUTS, expected, session.run(list(OUTPUTS), arrays), strict=True):
            size = deviation[..., None] if name == "quantiles" else deviation
            size = torch.maximum(theirs.double().abs(), size).clamp(min=1e-300)
            largest = ((torch.from_numpy(ours) - theirs).abs() / size).max().item()
            if not largest <= tolerance:
                raise ExportError(
                    f"the graph's {name} differs from PyTorch by {largest:.1e}, relative to its size and the law's "
                    f"deviation, more than {tolerance:g}: nothing was written; levels nearer to the middle than "
                    f"{levels[0]:g} and {levels[-1]:g} may help, or calibration='conformal'"
                )
            worst = max(worst, largest)
    return worst
