"""All that is known of optuna: proposals of what to try, and what is finished in one file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from itocast.tuning.dials import Space

NAME, GUARD = "itocast", "guard "
CHANGES = 4  # settings of the best trial that the next one changes, at most


@contextmanager
def optuna_at_hand() -> Iterator[None]:
    """Optuna, if it is installed, without its log."""
    try:
        import optuna
    except ImportError:
        raise ImportError("a search for settings needs optuna: pip install 'itocast[tune]'") from None
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(level)


class Study:
    """Finished trials, and finished fits of the guard by trial and seed; written to a file at once if there is one."""

    def __init__(self, path: Path | None, search: dict[str, str]) -> None:
        import optuna

        self._kept = optuna.create_study() if path is None else _opened(path, search)
        self.trials: list[Any] = self._kept.trials
        self.fits: dict[tuple[int, int], dict[str, Any]] = {}
        for name, fit in self._kept.user_attrs.items():
            if name.startswith(GUARD):
                number, seed = map(int, name.removeprefix(GUARD).split())
                self.fits[number, seed] = fit

    def add(self, trial: Any) -> None:
        """Keep a trial; it is one line of the journal, there whole or not at all."""
        self._kept.add_trial(trial)
        self.trials.append(trial)

    def add_fit(self, number: int, seed: int, fit: dict[str, Any]) -> None:
        """Keep a fit of the guard in the same way."""
        self._kept.set_user_attr(f"{GUARD}{number} {seed}", fit)
        self.fits[number, seed] = fit


def _opened(path: Path, search: dict[str, str]) -> Any:
    """The study of a file, new or as it was left; refused if it is not of the search that `search` describes."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():  # a line that was cut short is no trial, and must not spoil the next one
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            path.write_bytes(content[: content.rfind(b"\n") + 1])
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        there = NAME in optuna.get_all_study_names(storage)
        study = (optuna.load_study if there else optuna.create_study)(study_name=NAME, storage=storage)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a study, or is damaged ({error}): name another folder") from None
    before = study.user_attrs.get("search")
    if before is None:
        study.set_user_attr("search", search)
    elif before != search:
        names = [name for name in before | search if before.get(name) != search.get(name)]
        words = [
            f"{name} was {before.get(name, 'not set')}, here it is {search.get(name, 'not set')}" for name in names
        ]
        raise ValueError(f"folder={str(path.parent)!r} holds another search: {'; '.join(words)}; name another folder")
    return study


def propose(trials: list[Any], space: Space, seeds: list[int]) -> dict[str, Any]:
    """The best point so far with a few settings changed; the same seeds and trials give the same.

    What they become is random in the first ten trials, then by the tree-structured Parzen estimator. Defaults are good
    and trials dear: points that are new in every setting would hardly ever beat them.
    """
    import optuna

    random = np.random.default_rng(seeds)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=int(random.integers(2**32))))
    study.add_trials(trials)
    point = study.ask(_distributions(space)).params
    few = random.choice(list(space), min(int(random.integers(CHANGES)) + 1, len(space)), replace=False)
    return study.best_params | {name: point[name] for name in few.tolist()}


def finished_trial(point: dict[str, Any], space: Space, score: float | None, notes: dict[str, Any]) -> Any:
    """A trial as it is kept: with its score, or None where there is none."""
    from optuna.trial import TrialState, create_trial

    state = TrialState.PRUNED if score is None else TrialState.COMPLETE
    return create_trial(
        state=state, value=score, params=point, distributions=_distributions(space), user_attrs=notes
    )  # fmt: skip


def _distributions(space: Space) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return {
        name: CategoricalDistribution(values) if isinstance(values, list) else FloatDistribution(*values, log=True)
        for name, values in space.items()
    }
