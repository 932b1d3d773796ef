"""The scikit-learn estimators: scikit-learn's own contract, known answers, and what they say to bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from itocast import folders
from itocast.categorical import Categorical
from itocast.estimators import SDEClassifier, SDERegressor, log_factors
from itocast.forecast import Forecast
from itocast.models.committee import Committee, pool
from itocast.nets import Inputs, Sizes
from itocast.sde import Noise
from itocast.storage import StorageError

SMALL = {"members": 2, "hidden": 16, "epochs": 14, "paths": 4, "dropout": 0.0, "learning_rate": 0.02}


@parametrize_with_checks([SDERegressor(**SMALL), SDEClassifier(**SMALL)])
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


def curve(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets and the true deviation of a generator whose noise grows with the distance from 0."""
    random = np.random.default_rng(seed)
    x = random.uniform(-2, 2, (rows, 2))
    deviation = 0.2 + 0.3 * np.abs(x[:, 0])
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + deviation * random.standard_normal(rows), deviation


@pytest.fixture(scope="module")
def fitted() -> SDERegressor:
    x, y, _ = curve(300, seed=0)
    return SDERegressor(**SMALL).fit(x, y)


@pytest.fixture(scope="module")
def classifier() -> SDEClassifier:
    x, y = make_moons(300, noise=0.2, random_state=0)
    return SDEClassifier(**SMALL).fit(x, np.array(["moon", "sun"])[y])


def test_intervals_of_a_known_generator_cover_and_deviations_are_true():
    """By the generator's own law, not by outcomes, so that only the fit can miss; processors change it a little."""
    x, y, _ = curve(1500, seed=1)
    new, _, deviation = curve(1000, seed=2)
    model = SDERegressor().fit(x, y)
    mean, predicted = model.predict(new, return_std=True)
    assert np.abs(predicted / deviation - 1).mean() < 0.2
    assert np.corrcoef(predicted, deviation)[0, 1] > 0.85
    true_mean = np.sin(2 * new[:, 0]) + 0.5 * new[:, 1]
    for level in (50, 90):
        below, up_to = (norm.cdf(bound, true_mean, deviation) for bound in model.predict_interval(new, level))
        assert (up_to - below).mean() == pytest.approx(level / 100, abs=0.03)
    assert np.sqrt(np.square(mean - true_mean).mean()) < 0.3 * deviation.mean()


def test_probabilities_of_a_known_generator():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (1500, 1))
    chance = 1 / (1 + np.exp(-4 * x[:, 0]))
    model = SDEClassifier(members=4, hidden=32).fit(x, random.uniform(size=len(x)) < chance)
    new = np.linspace(-0.9, 0.9, 19)[:, None]
    assert np.abs(model.predict_proba(new)[:, 1] - 1 / (1 + np.exp(-4 * new[:, 0]))).max() < 0.1
    uncertainty = model.predict_uncertainty(new)
    assert uncertainty.total.argmax() in range(7, 12)  # the entropy is highest where the chance is a half
    assert (uncertainty.epistemic < 0.1 * uncertainty.total).all()  # 1500 rows leave noise, not ignorance


def test_what_is_not_known_grows_away_from_the_data():
    x, y, _ = curve(300, seed=0)
    law = SDERegressor(members=4, hidden=16, epochs=60).fit(x, y).predict_distribution([[0.0, 0.0], [6.0, 6.0]])
    assert law.epistemic[1] > 10 * law.epistemic[0]
    torch.testing.assert_close(law.variance, law.aleatoric + law.epistemic)


def test_mean_interval_quantiles_and_law_agree(fitted):
    x, _, _ = curve(20, seed=3)
    law = fitted.predict_distribution(x)
    assert law.shape == (20, 1, 1)
    mean, deviation = fitted.predict(x, return_std=True)
    np.testing.assert_allclose(mean, law.mean[:, 0, 0])
    np.testing.assert_allclose(deviation**2, law.variance[:, 0, 0])
    quantiles = fitted.predict_quantiles(x, [0.05, 0.95])
    np.testing.assert_allclose(quantiles, np.stack(fitted.predict_interval(x, level=90), axis=-1))
    np.testing.assert_allclose(law.cdf(quantiles[:, :1, None]).flatten(), 0.05, atol=1e-6)


def test_laws_follow_the_units_of_targets_and_features(fitted):
    x, y, _ = curve(300, seed=0)
    other = SDERegressor(**SMALL).fit(x * 1000 - 5, 100 * y + 7)
    np.testing.assert_allclose(other.predict(x * 1000 - 5), 100 * fitted.predict(x) + 7, rtol=0.02, atol=2)


def test_several_targets_have_laws_of_their_own():
    x, y, _ = curve(600, seed=0)
    both = np.stack([y, 1000 * x[:, 1]], axis=1)
    model = SDERegressor(**SMALL).fit(x, both)
    mean, spread = model.predict(x, return_std=True)
    assert mean.shape == spread.shape == (600, 2)
    assert model.predict_quantiles(x[:5], [0.1, 0.5, 0.9]).shape == (5, 2, 3)
    assert model.score(x, both) > 0.7
    assert (spread[:, 1] / both[:, 1].std()).mean() < 0.5 * (spread[:, 0] / y.std()).mean()  # one has noise, one none


def test_same_seed_same_numbers_and_other_seed_others(fitted):
    x, y, _ = curve(300, seed=0)
    again = SDERegressor(**SMALL)
    torch.manual_seed(1)  # plays no part
    np.testing.assert_array_equal(again.fit(x, y).predict(x), fitted.predict(x))
    assert not np.array_equal(clone(again).set_params(random_state=1).fit(x, y).predict(x), fitted.predict(x))
    drawn = [SDERegressor(**SMALL, random_state=np.random.RandomState(5)).fit(x, y).predict(x) for _ in range(2)]
    np.testing.assert_array_equal(*drawn)


def test_pipeline_search_and_cross_validation():
    x, y, _ = curve(200, seed=0)
    pipeline = make_pipeline(StandardScaler(), SDERegressor(**SMALL))
    assert cross_val_score(pipeline, x, y, cv=2).mean() > 0.3
    search = GridSearchCV(SDERegressor(**SMALL), {"members": [1, 2], "components": [1, 2]}, cv=2).fit(x, y)
    assert search.best_params_.keys() == {"members", "components"}
    assert search.predict(x).shape == (200,)
    labels = (y > 0).astype(int)
    assert cross_val_score(SDEClassifier(**SMALL), x, labels, cv=2, scoring="neg_log_loss").mean() > -0.6


def test_frames_keep_their_names_and_refuse_others():
    x, y, _ = curve(100, seed=0)
    frame = pd.DataFrame(x, columns=["size", "age"])
    model = SDERegressor(**SMALL).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["size", "age"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["age", "size"]])


@pytest.mark.parametrize("which", ["fitted", "classifier"])
def test_saved_and_pickled_estimators_give_the_same(which, request, tmp_path):
    model = request.getfixturevalue(which)
    x, _, _ = curve(30, seed=3)
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["manifest.json", "weights.safetensors"]
    for again in (type(model).load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(x), model.predict(x))
        assert again.get_params() == model.get_params()
    if which == "classifier":
        np.testing.assert_array_equal(type(model).load(tmp_path / "model").predict_proba(x), model.predict_proba(x))


def test_names_several_targets_and_numbered_classes_survive_storage(tmp_path):
    x, y, _ = curve(60, seed=0)
    frame = pd.DataFrame(x, columns=["size", "age"])
    model = SDERegressor(**SMALL).fit(frame, np.stack([y, -y], axis=1))
    model.save(tmp_path)
    again = SDERegressor.load(tmp_path)
    assert again.feature_names_in_.tolist() == ["size", "age"]
    np.testing.assert_array_equal(again.predict_quantiles(frame), model.predict_quantiles(frame))
    classes = SDEClassifier(**SMALL).fit(x, np.where(y > 0, 7, 3))
    classes.save(tmp_path)
    assert SDEClassifier.load(tmp_path).classes_.tolist() == [3, 7]
    assert SDEClassifier.load(tmp_path).classes_.dtype == classes.classes_.dtype


def test_storage_says_what_is_wrong(fitted, tmp_path):
    fitted.save(tmp_path)
    with pytest.raises(StorageError, match="holds SDERegressor: expected a Forecaster; load it with SDERegressor"):
        folders.load(tmp_path)
    with pytest.raises(StorageError, match="holds SDERegressor: expected SDEClassifier; load it with its own class"):
        SDEClassifier.load(tmp_path)
    with pytest.raises(NotFittedError):
        SDERegressor().save(tmp_path)
    with pytest.raises(StorageError, match="there is no such folder"):
        SDERegressor.load(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"members": 0}, "members=0: expected a whole number of networks, at least 1"),
        ({"members": 2.5}, r"members=2\.5: expected a whole number"),
        ({"hidden": 2}, "hidden=2: expected a whole number of units, at least 4"),
        ({"components": 0}, "components=0: expected a whole number of Gaussians"),
        ({"dropout": 1.0}, r"dropout=1\.0: expected a probability from 0 to 0\.95"),
        ({"epochs": 0}, "epochs=0: expected a whole number, at least 1, or None"),
        ({"epochs": True}, "epochs=True: expected a whole number"),
        ({"batch_size": -3}, "batch_size=-3: expected a whole number"),
        ({"learning_rate": 0.0}, r"learning_rate=0\.0: expected a positive number"),
        ({"learning_rate": float("nan")}, "learning_rate=nan: expected a positive number"),
        ({"weight_decay": -1}, "weight_decay=-1: expected a number that is not negative"),
        ({"paths": "many"}, "paths='many': expected a whole number of paths"),
        ({"random_state": -1}, "random_state=-1: expected an integer from 0"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        SDERegressor(**settings).fit([[0.0], [1.0]], [0.0, 1.0])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[0.0], [np.nan]], [0.0, 1.0], "Input X contains NaN"),
        ([[0.0], [1.0]], [0.0, np.inf], "Input y contains infinity"),
        ([[0.0], [1.0]], [0.0, 1.0, 2.0], "inconsistent numbers of samples"),
        ([0.0, 1.0], [0.0, 1.0], "Expected 2D array, got 1D array instead"),
        ([["red"], ["blue"]], [0.0, 1.0], "could not convert string to float"),
        ([[0.0]], [1.0], "minimum of 2 is required"),
    ],
)
def test_bad_data(x, y, message):
    with pytest.raises(ValueError, match=message):
        SDERegressor(**SMALL).fit(x, y)


def test_bad_questions(fitted, classifier):
    x = np.zeros((2, 2))
    with pytest.raises(ValueError, match=r"level=0\.9: expected a percentage"):
        fitted.predict_interval(x, level=0.9)
    for bad in ([0.0], [5, 95], []):
        with pytest.raises(ValueError, match=r"expected .*numbers? above 0 and below 1"):
            fitted.predict_quantiles(x, bad)
    assert fitted.predict_quantiles(x, 0.5).shape == (2, 1)
    with pytest.raises(ValueError, match="X has 3 features, but SDERegressor is expecting 2"):
        fitted.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="y holds one class, 'sun': expected at least two; add rows"):
        SDEClassifier(**SMALL).fit(x, ["sun", "sun"])
    with pytest.raises(ValueError, match="Unknown label type"):
        SDEClassifier(**SMALL).fit(x, [0.5, 1.7])


def test_entropies_of_known_paths():
    agree = Categorical(torch.full((3, 1, 2, 4), 0.25).log())
    assert agree.entropy.item() == pytest.approx(np.log(4))
    assert agree.epistemic.item() == pytest.approx(0, abs=1e-6)
    certain = Categorical(torch.eye(4).log().reshape(4, 1, 1, 4))  # each path is sure of another class
    assert certain.entropy.item() == pytest.approx(np.log(4))
    assert certain.aleatoric.item() == 0


def test_uncertainty_of_classes_is_made_of_its_parts(classifier):
    x = np.random.default_rng(0).normal(size=(50, 2))
    uncertainty = classifier.predict_uncertainty(x)
    probabilities = classifier.predict_proba(x)
    np.testing.assert_allclose(uncertainty.total, -(probabilities * np.log(probabilities)).sum(1), rtol=1e-6)
    assert ((uncertainty.epistemic >= 0) & (uncertainty.epistemic <= uncertainty.total)).all()


def test_a_member_learns_nothing_from_what_it_leaves_out():
    sizes = Sizes(window=3, targets=1, covariates=0, known=0, horizon=2)
    model = Committee(sizes, block=None)
    x = Inputs(torch.randn(9, 3, 1, generator=torch.Generator().manual_seed(0)), *[torch.zeros(9, 0)] * 3)
    y = torch.ones(9, 2, 1)
    y[:, 1] = torch.nan
    model.loss(x, y, Noise(0, shared=False)).backward()
    first, second = model.mean.weight.grad
    assert first.abs().max() > 0
    assert second.abs().max() == 0


def test_pooled_members_are_paths():
    law = Forecast(torch.arange(6.0).reshape(2, 1, 3, 1), torch.ones(2, 1, 3, 1))  # 2 paths of 3 members
    assert pool(law).mean.item() == 2.5
    assert pool(law).epistemic.item() == pytest.approx(np.var(np.arange(6)))


def test_factors_recover_a_known_excess_of_variance_and_never_widen():
    y = torch.from_numpy(np.random.default_rng(0).normal(size=(4000, 1, 2))) * torch.tensor([0.5, 3.0])
    wide, narrow = log_factors(Forecast(torch.zeros(1, 4000, 1, 2), torch.ones(1, 4000, 1, 2)), y)
    assert wide == pytest.approx(np.log(0.25), abs=0.1)
    assert narrow == 0
