"""Export: the graph says what the library says, for all that a table can hold, and runs with ONNX Runtime alone."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from scipy.special import ndtr

from itocast import Forecaster, export
from itocast.calibration import CALIBRATORS
from itocast.clipped import Clipped
from itocast.data.clock import Clock
from itocast.data.scaling import QuantileNormal
from itocast.export.contract import arrays_of, inputs_of
from itocast.export.graph import Graph
from itocast.export.laws import Levels, Mixture
from itocast.export.special import Line, Normal, running_max, waves
from itocast.export.writing import EXPORTED, ExportError, newest
from itocast.forecast import Forecast
from itocast.nets import Encoder
from itocast.tabulated import LEVELS
from itocast.zero_shot import CONTEXT, ZeroShot

SMALL = {"encoder": Encoder(dim=8, hidden=16, layers=1)}
ASKED = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]


def panel(rows: int = 400, missing: bool = True) -> pd.DataFrame:
    """Three hourly series in a zone, with covariates of every kind, and missing values."""
    random = np.random.default_rng(0)
    times = pd.date_range("2024-03-01", periods=rows, freq="h", tz="Europe/Berlin")
    parts = []
    for name, level in (("a", 10.0), ("b", 300.0), ("c", 2.0)):
        y = level * (3 + np.sin(times.hour.to_numpy() / 4) + 0.3 * random.standard_normal(rows))
        part = pd.DataFrame({"unique_id": name, "ds": times, "y": y.round(1), "size": level, "place": name + "-town"})
        part["heat"] = random.standard_normal(rows)
        part["sky"] = random.choice(["clear", "rain", "snow"], rows)
        part["price"] = random.standard_normal(rows)
        part["sale"] = random.choice(["yes", "no"], rows)
        if missing:
            part.loc[random.choice(rows, 20, replace=False), "y"] = np.nan
            part.loc[random.choice(rows, 20, replace=False), "heat"] = np.nan
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


NAMES = {"past": ["heat", "sky"], "future": ["price", "sale"], "static": ["size", "place"]}


def fitted(model="sde_hnn", frame=None, names=NAMES, horizon=2, settings=SMALL, **arguments) -> Forecaster:
    from itocast.config import model_from

    forecaster = Forecaster(
        horizon, window=12, model=model_from({"kind": model, **settings}), training={"epochs": 1}, **arguments
    )
    return forecaster.fit(panel() if frame is None else frame, **names)


def compared(forecaster: Forecaster, frame: pd.DataFrame, levels=ASKED) -> float:
    """The largest difference of what is exported from the library, on a table's newest forecasts."""
    inner = newest(forecaster.fitted)
    table = forecaster.reader.read(frame)[0]
    preparation = inner.preparation.meeting(table)
    windows = preparation.windows(table).last(40)
    law, arrays = inner.law(windows), arrays_of(inner, table, windows, preparation)
    graph = Graph(inner, levels)
    with torch.no_grad():
        mean, aleatoric, epistemic, quantiles = graph(*map(torch.from_numpy, arrays.values()))
    deviation = law.variance.double().sqrt()
    pairs = (
        (mean, law.mean, deviation), (aleatoric, law.aleatoric.sqrt(), deviation),
        (epistemic, law.epistemic.sqrt(), deviation),
        (quantiles, law.quantile(levels).movedim(0, -1), deviation[..., None]),
    )  # fmt: skip
    return max(((ours - theirs).abs() / torch.maximum(theirs.abs(), size)).max().item() for ours, theirs, size in pairs)


def law(kind: str) -> Forecast:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    shape, middle = (32, 40, 1, 1, 5), (1, 40, 1, 1, 5)
    means, variances = {
        "smooth": (0.1 * normal(*shape) + normal(*middle), 0.1 * (0.1 * normal(*shape)).exp()),
        "peaked": (1e-4 * normal(*shape) + 3 * normal(*middle), torch.full(shape, 1e-6)),
        "separated": (0.01 * normal(*shape) + 50 * normal(*middle), torch.full(shape, 0.01)),
        "uneven": (0.01 * normal(*shape) + normal(*middle), (-6 - 4 * normal(*middle)).exp().clamp(1e-6).expand(shape)),
    }[kind]  # fmt: skip
    return Forecast(means, variances, normal(*shape).softmax(-1))


@pytest.mark.parametrize("kind", ["smooth", "peaked", "separated", "uneven"])
def test_quantiles_of_a_mixture_are_the_librarys_in_a_fixed_number_of_steps(kind):
    base = law(kind)
    mixture = Mixture(
        *(part.double().movedim(0, -2) for part in (base.means, (0.5 * base.log_variances.double()).exp(),
                                                     base.log_weights.double().exp()))
    )  # fmt: skip
    levels = torch.tensor([1e-5, 0.001, 0.05, 0.3, 0.5, 0.9, 0.999, 1 - 1e-5], dtype=torch.float64)
    deviation = base.variance.double().sqrt()[..., None]
    apart = mixture.quantiles(Levels.of(levels)) - base.quantile(levels).movedim(0, -1)
    assert (apart.abs() / deviation).max() < 1e-9
    apart = (mixture.table() - base.tabulate(LEVELS).movedim(0, -1)).abs() / deviation
    assert apart.max() < 2e-3  # the library's table is in single precision, which tells on far tails and plateaus
    assert apart.quantile(0.95) < 1e-4
    for ends in ((0.0, np.inf), (0.0, 1.0)):
        moments, clipped = mixture.moments(ends), Clipped(base, *ends)
        torch.testing.assert_close(moments.mean, clipped.mean, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(moments.aleatoric, clipped.aleatoric, rtol=1e-5, atol=1e-9)
        torch.testing.assert_close(moments.epistemic, clipped.epistemic, rtol=1e-5, atol=1e-9)


def test_the_normal_cdf_is_right_in_its_tail():
    z = torch.linspace(-30, 8, 3001, dtype=torch.float64)
    under, height = Normal()(z)
    np.testing.assert_allclose(under.numpy(), ndtr(z.numpy()), rtol=1e-10)
    torch.testing.assert_close(height, (-0.5 * z * z).exp())


def test_a_line_is_the_quantile_scaler_and_its_inverse():
    random = np.random.default_rng(0)
    values = np.stack([random.gamma(1, size=3000), random.poisson(3, 3000), np.full(3000, 7.0)], 1)
    scaler = QuantileNormal.fit(values)
    points = np.concatenate([values[:50], random.uniform(-5, 30, (500, 3))])
    ours = Line(scaler.knots, scaler.normals, scaler.slopes)(torch.from_numpy(points)).numpy()
    np.testing.assert_allclose(ours, scaler.transform(points), atol=1e-10)
    back = Line(scaler.normals, scaler.knots, [1 / slope for slope in scaler.slopes])(torch.from_numpy(ours))
    np.testing.assert_allclose(back.numpy(), scaler.inverse(torch.from_numpy(ours)).numpy(), atol=1e-9)


def test_the_calendar_is_that_of_the_clock():
    times = pd.date_range("1890-01-01", "2110-01-01", freq="17h").as_unit("us")
    cycles = ("day", "week", "month", "year")
    ours = torch.stack(waves(torch.from_numpy(times.asi8 / 1e6), cycles), -1).numpy()
    np.testing.assert_allclose(ours, Clock("h").calendar(times.asi8, cycles), atol=1e-6)


def test_running_max_is_cummax():
    values = torch.randn(4, 30, generator=torch.Generator().manual_seed(0))
    assert running_max(values).equal(values.cummax(-1).values)


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return fitted(calibration=None)


@pytest.mark.parametrize("by", [None, "series", "place"])
@pytest.mark.parametrize("calibration", [None, *CALIBRATORS])
def test_every_calibration_is_in_the_graph(forecaster, calibration, by):
    frame = panel()
    forecaster.calibrate(frame, calibration, by)
    assert compared(forecaster, frame) < 1e-4


@pytest.mark.parametrize(
    "arguments",
    [
        {"data": {"scaling": "rank"}},
        {"data": {"scaling": "rank"}, "support": "positive", "calibration": "variance"},
        {"data": {"scaling": "minmax", "local": False}},
        {"data": {"calendar": False, "identity": False, "local": False}},
        {"data": {"holidays": "DE"}, "support": "positive"},
        {"support": "positive", "calibration": "isotonic"},
        {"support": "positive", "calibration": "variance"},
    ],
)
def test_every_way_of_reading_a_table_is_in_the_graph(arguments):
    assert compared(fitted(**arguments), panel()) < 1e-4


def test_irregular_times_several_targets_and_no_series_are_in_the_graph():
    frame = panel().query("unique_id == 'a'").sample(200, random_state=0).sort_values("ds")
    frame["z"] = frame["y"] * 2 + frame["heat"]
    forecaster = fitted(frame=frame, names={"target": ["y", "z"], "id": None}, data={"gaps": "keep"})
    assert {"age", "gap", "until", "time"} < {spec.name for spec in inputs_of(forecaster.fitted)}
    assert compared(forecaster, frame) < 1e-4


def test_a_series_that_training_did_not_see_has_the_scale_that_is_passed(forecaster):
    frame = panel().assign(unique_id=lambda f: f["unique_id"].replace("c", "new"))
    forecaster.calibrate(panel(), "conformal", "series")
    assert compared(forecaster, frame) < 1e-4
    ahead = frame.groupby("unique_id").tail(2).assign(ds=lambda f: f["ds"] + pd.Timedelta("2h"))
    assert -1 in export.inputs(forecaster, frame, ahead)["series"]


@pytest.mark.parametrize("level", [0.0, 20.0, -1000.0])
@pytest.mark.parametrize("apart", [True, False])
def test_levels_inside_and_outside_the_range_of_training_are_in_the_graph(level, apart):
    """A series moves by so many of its deviations: where its level was never seen, none of it is shown."""
    frame = panel(missing=False)
    frame["z"] = frame["y"] * 2 + frame["heat"]
    names = {"target": ["y", "z"], "past": ["heat"]}
    forecaster = fitted(frame=frame, names=names, data={"apart": apart}, support="real")
    by = level * frame.groupby("unique_id")["y"].transform("std")
    moved = frame.assign(y=frame["y"] + by)
    table = forecaster.reader.read(moved)[0]
    windows = forecaster.fitted.preparation.windows(table).last(40)
    centre, low, high = windows.levels()[0][:, 0, 0], *(
        part[windows.numbers.series[windows.origins], 0] for part in (windows.numbers.low, windows.numbers.high)
    )  # fmt: skip
    assert ((centre >= low) & (centre <= high)).any() == (level == 0)
    assert compared(forecaster, moved) < 1e-4


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_encoders_are_in_the_graph(kind):
    frame = panel().query("unique_id == 'a'")
    assert compared(fitted("hnn", frame, {}, settings={"encoder": Encoder(kind=kind, dim=8, layers=1)}), frame) < 1e-4


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    forecaster = fitted(calibration="conformal_quantiles", calibration_by="place")
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    return forecaster, path, export.to_onnx(forecaster, path, ASKED)


def test_onnx_runtime_gives_the_forecasts_of_predict_for_any_number_of_rows(exported):
    forecaster, path, _ = exported
    frame = panel()
    ahead = frame.groupby("unique_id").tail(2).assign(ds=lambda f: f["ds"] + pd.Timedelta("2h"))
    expected = forecaster.predict(frame, level=(), quantiles=ASKED, future=ahead)
    arrays = export.inputs(forecaster, frame, ahead)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    whole = dict(zip(names, session.run(None, arrays), strict=True))
    for name in ("mean", "aleatoric", "epistemic"):
        np.testing.assert_allclose(whole[name].reshape(-1), expected[name], rtol=1e-4)
    columns = expected[[f"q-{level:g}" for level in ASKED]].to_numpy()
    np.testing.assert_allclose(whole["quantiles"].reshape(-1, len(ASKED)), columns, rtol=1e-4)
    for row in range(3):
        one = session.run(None, {name: array[row : row + 1] for name, array in arrays.items()})
        np.testing.assert_allclose(one[3], whole["quantiles"][row : row + 1], rtol=1e-4)


def test_nothing_but_onnx_runtime_is_needed(exported, tmp_path):
    forecaster, path, _ = exported
    frame = panel()
    ahead = frame.groupby("unique_id").tail(2).assign(ds=lambda f: f["ds"] + pd.Timedelta("2h"))
    np.savez(tmp_path / "arrays.npz", **export.inputs(forecaster, frame, ahead))
    code = (
        "import sys, numpy, onnxruntime\n"
        f"session = onnxruntime.InferenceSession({str(path)!r})\n"
        f"out = session.run(None, dict(numpy.load({str(tmp_path / 'arrays.npz')!r})))\n"
        "print(out[3].shape, 'torch' in sys.modules, 'itocast' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "(3, 2, 1, 7) False False"


def test_the_file_says_what_it_reads(exported):
    _, path, described = exported
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    held = json.loads(session.get_modelmeta().custom_metadata_map["itocast"])
    assert held == json.loads(json.dumps(described))
    assert {i.name: i.shape for i in session.get_inputs()} == {i["name"]: i["shape"] for i in held["inputs"]}
    kinds = {"int64": "tensor(int64)", "float64": "tensor(double)"}
    assert {i.name: i.type for i in session.get_inputs()} == {i["name"]: kinds[i["type"]] for i in held["inputs"]}
    assert held["levels"] == ASKED
    assert held["series"] == ["a", "b", "c"]
    assert held["groups"] == ["a-town", "b-town", "c-town"]
    assert held["categories"]["sky"] == ["clear", "rain", "snow"]
    assert held["difference"] < 1e-4


@pytest.mark.parametrize("model", [name for name in EXPORTED if name != "hnn"])  # that is on the command line
def test_every_model_that_is_said_to_be_is_exported(model, tmp_path):
    settings = {"encoder": Encoder(dim=4, hidden=8, layers=1)}
    calibration = None if model == "sde_hnn" else "conformal"
    frame = panel(120).query("unique_id == 'a'")
    forecaster = fitted(model, frame, {}, 1, settings, calibration=calibration)
    assert export.to_onnx(forecaster, tmp_path / "model.onnx", [0.5])["difference"] < 1e-4


# ---- the prior, alone and in a blend


def prior(frame: pd.DataFrame, target="y", **arguments) -> Forecaster:
    return Forecaster(3, model="prior", **arguments).fit(frame, target)


def blend(frame: pd.DataFrame, target="y", own=None, **arguments) -> Forecaster:
    """A network and the prior with shares that are given, whatever held-out rows say."""
    names = {"target": target, "past": ["heat"]}
    forecaster = fitted(frame=frame, names=names, horizon=3, **arguments)
    inner = forecaster.fitted
    inner.zero_shot, inner.share, inner.own = ZeroShot.of(inner.context), 0.5, own or {}
    inner.preparation = replace(inner.preparation, memory=CONTEXT)
    return forecaster


def agree(forecaster: Forecaster, frame: pd.DataFrame, path) -> list[str]:
    """ONNX Runtime gives the forecasts of `predict`; the names of what it reads."""
    described = export.to_onnx(forecaster, path, ASKED)
    near = 1e-3 if forecaster.fitted.zero_shot else 1e-4
    assert described["difference"] < near
    expected = forecaster.predict(frame, level=(), quantiles=ASKED)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    arrays = export.inputs(forecaster, frame)
    mean, aleatoric, epistemic, quantiles = session.run(None, arrays)
    for ours, name in ((mean, "mean"), (aleatoric, "aleatoric"), (epistemic, "epistemic")):
        np.testing.assert_allclose(ours.reshape(-1), expected[name], rtol=near)
    columns = expected[[f"q-{level:g}" for level in ASKED]].to_numpy()
    np.testing.assert_allclose(quantiles.reshape(-1, len(ASKED)), columns, rtol=near)
    one = session.run(None, {name: array[:1] for name, array in arrays.items()})
    np.testing.assert_allclose(one[0], mean[:1], rtol=1e-4)
    return [spec["name"] for spec in described["inputs"]]


def test_the_prior_alone_is_exported_with_missing_values_and_several_series(tmp_path):
    frame = panel().query("unique_id != 'c'")
    forecaster = prior(frame)
    names = agree(forecaster, frame, tmp_path / "model.onnx")
    assert names == ["history", "series", "scale", "rounding"]
    assert np.isnan(export.inputs(forecaster, frame)["history"]).sum() > 2 * (CONTEXT - 400)


def test_the_prior_of_two_targets_is_exported(tmp_path):
    frame = panel().query("unique_id == 'a'").drop(columns="unique_id")
    frame["z"] = frame["y"] ** 2
    frame.loc[frame.index[:150], "z"] = np.nan  # nothing of it was seen in the first windows
    forecaster = prior(frame, ["y", "z"], support="positive", calibration="isotonic")
    assert agree(forecaster, frame, tmp_path / "model.onnx") == ["history"]


def test_a_blend_with_shares_of_its_series_is_exported(tmp_path):
    frame = panel()
    frame["z"] = frame["y"] * 2 + frame["heat"].fillna(0)
    own = {"a": [0.25, 1.0], "b": [0.0, 0.75]}
    forecaster = blend(frame, ["y", "z"], own, calibration=None, support="positive")
    names = agree(forecaster, frame, tmp_path / "model.onnx")
    assert {"lags", "past", "time", "history", "series", "scale", "rounding"} <= set(names)


@pytest.mark.parametrize("make", [prior, blend])
def test_every_calibration_of_the_prior_is_in_the_graph(make):
    frame = panel()
    forecaster = make(frame, calibration=None)
    for calibration in (None, *CALIBRATORS):
        forecaster.calibrate(frame, calibration, None if calibration is None else "series")
        assert compared(forecaster, frame) < 1e-3, calibration


def test_the_prior_of_single_rows_is_compared_on_what_comes_next():
    from itocast.export import writing

    frame = panel(1, missing=False).query("unique_id != 'c'")
    for arrays, windows in writing._samples(newest(prior(frame).fitted)):
        assert len(windows) == 2
        assert (~np.isnan(arrays["history"])).sum(1).tolist() == [[1], [1]]
        assert arrays["series"].tolist() == [0, 1]


def test_the_prior_is_told_how_a_new_series_is_rounded():
    frame = panel()
    forecaster = prior(frame, calibration=None)
    new = frame.assign(unique_id=lambda f: f["unique_id"].replace("c", "new"))
    new["y"] = (new["y"] / 5).round() * 5
    arrays = export.inputs(forecaster, new)
    assert arrays["series"].tolist() == [0, 1, -1]
    assert arrays["rounding"][2].item() == pytest.approx(5)
    assert compared(forecaster, new) < 1e-3


def test_export_on_the_command_line(run, tmp_path):
    frame = panel(120).query("unique_id == 'a'")
    settings = {"encoder": Encoder(kind="lstm", dim=4, layers=1)}
    fitted("hnn", frame, {}, 1, settings, calibration="conformal").save(tmp_path / "model")
    done = run("export", tmp_path / "model", "-o", tmp_path / "out.onnx", "--levels", "0.9,0.1")
    assert done.error == ""
    assert "reads lags, season, seasoned, age, time, series, scale; gives mean, aleatoric" in done.out
    assert "epistemic, quantiles at 0.1, 0.9" in done.out
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    assert session.get_outputs()[3].shape == ["rows", 1, 1, 2]
    refused = run("export", tmp_path / "nothing", "-o", tmp_path / "out.pt")
    assert refused.code == 1
    assert "expected a file name that ends with .onnx" in refused.error


def test_what_cannot_be_exported_is_refused(tmp_path, forecaster, monkeypatch):
    frame = panel().query("unique_id == 'a'")
    bnn = fitted("bnn", frame, {})
    with pytest.raises(ExportError, match=r"model bnn cannot be exported.*expected one of sde_hnn, hnn"):
        export.to_onnx(bnn, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"output='.*model.pt': expected a file name that ends with .onnx"):
        export.to_onnx(forecaster, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="levels=2: expected numbers above 0 and below 1"):
        export.to_onnx(forecaster, tmp_path / "model.onnx", 2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("freq", ["YS", "ME", "B", "15min"])
def test_what_is_compared_stays_within_the_calendar(freq):
    from itocast.export import writing

    frame = pd.DataFrame({"ds": pd.date_range("1950-01-01", periods=70, freq=freq), "y": np.arange(70.0) % 7})
    samples = list(writing._samples(fitted("hnn", frame, {}, 1, calibration=None).fitted))
    assert len(samples) == writing.VARIANTS + 1
    assert all(np.isfinite(array).all() for arrays, _ in samples for array in arrays.values())


def test_a_graph_that_is_not_the_model_is_not_written(tmp_path, exported, monkeypatch):
    from itocast.export import writing

    forecaster, path, _ = exported
    samples = list(writing._samples(forecaster.fitted))
    for arrays, _ in samples:
        arrays["lags"] = arrays["lags"] * 1.01  # what the graph reads is not what the model does
    with pytest.raises(ExportError, match=r"the graph's mean differs from PyTorch by .* nothing was written"):
        writing._compare(forecaster.fitted, path.read_bytes(), samples, ASKED)
