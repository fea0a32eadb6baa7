"""Estimators that train in a temporary run directory, as the command line does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xxhash

from blocks.errors import OocError, reword_error
from ooc.runs.run import Run
from samplers.estimators.base import Transformer, byte_count, combine_callbacks, job_count, random_seed
from samplers.estimators.parameters import checked_parameters
from samplers.estimators.workspace import TemporaryWorkspace
from samplers.options import Options, ResumeOptions, TrainingResources, described
from samplers.resume import resume_run

Kind = TypeVar("Kind", bound=Options)

_OF_NO_MODEL = ("callbacks", "max_iter", "memory", "n_jobs", "random_state", "verbose", "warm_start")


def estimator_parameters(kind: type[Options]) -> dict[str, str]:
    """Return the estimator's parameter names, by name of the training option."""
    return {each.name: each.parameter for each in described(kind).values()}


def training_options(kind: type[Kind], parameters: Mapping[str, Any], **more: Any) -> Kind:
    """Return the training options for an estimator's parameters.

    more: additional options.
    """
    known = {each.field: each.parameter for each in described(kind).values() if each.parameter in parameters}
    return kind(**{field: parameters[parameter] for field, parameter in known.items()} | more)


def _key(value: Any) -> str:
    """Return a text that differs for different values of a parameter; repr leaves out numbers of large arrays."""
    array = np.asarray(value.toarray() if hasattr(value, "toarray") else value) if hasattr(value, "shape") else None
    return repr(value) if array is None else f"{array.dtype} {array.shape} {xxhash.xxh3_128_hexdigest(array.tobytes())}"


class _WarmStartState(NamedTuple):
    """State from which a fit with `warm_start` continues."""

    workspace: TemporaryWorkspace
    key: tuple[str, ...]  # identity of the data, and the parameters on which a model depends


@dataclass(kw_only=True, eq=False, repr=False)
class RunEstimator(Transformer):
    """Base class of estimators that train in a temporary run directory.

    Parameters
    ----------
    max_iter : int
        Number of iterations.
    n_jobs : int or None
        Number of processes and threads; -1 uses all cores. Does not affect the model.
    memory : str or int, optional
        Memory limit of training, such as "2GB".
    random_state : int, numpy.random.Generator, RandomState or None
        Seed of the random numbers.
    verbose : int
        If above 0, print the plan and the progress to standard error.
    warm_start : bool
        If fitted again on the same data with the same parameters, train for max_iter more iterations.
    callbacks : callable or list of callables, optional
        Called after each iteration with its line of metrics (docs/files.md); training ends if a callback returns true.

    Attributes
    ----------
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        Lines of the metrics.
    """

    max_iter: int
    n_jobs: int | None = -1
    memory: str | int | None = None
    random_state: Any = None
    verbose: int = 0
    warm_start: bool = False
    callbacks: Callable | Sequence[Callable] | None = None
    n_iter_: int = field(init=False)
    history_: list[dict[str, Any]] = field(init=False)

    @contextmanager
    def _trained_run(self, train: Callable[..., None], identity: str) -> Iterator[Run]:
        """Yield a trained run, which exists until its model has been read.

        identity: identity of the data.

        train: function that starts a run in the directory `run` inside the given directory, with a seed and the
            arguments of `_how`.
        """
        checked_parameters(self)
        more = int(self.max_iter)
        chosen = {name: value for name, value in self.get_params().items() if name not in _OF_NO_MODEL}
        key = (identity, *map(_key, chosen.values()))
        before: _WarmStartState | None = vars(self).pop("_trained", None)
        goes_on = self.warm_start and before is not None and before.key == key
        workspace = before.workspace if before and goes_on else TemporaryWorkspace()
        try:
            if goes_on:
                resume_run(workspace.path / "run", ResumeOptions(iterations=self.n_iter_ + more), **self._how())
            else:
                train(workspace.path, random_seed(self.random_state), iterations=more, **self._how())
            run = Run(workspace.path / "run")
            yield run
            self.history_ = run.metrics()
            self.n_iter_ = self.history_[-1]["iteration"]
            if self.warm_start:
                self._trained = _WarmStartState(workspace, key)
        except OocError as error:  # the remedy would name a directory that no longer exists
            raise reword_error(error, lambda text: text.replace(str(workspace.path / "data"), "X")) from error
        finally:
            if "_trained" not in vars(self):
                workspace.remove()

    def _how(self) -> dict[str, Any]:
        """Return the training options that do not affect the result."""
        jobs = job_count(self.n_jobs)
        resources = TrainingResources(
            workers=None if self.n_jobs == -1 else jobs, memory_bytes=byte_count(self.memory), quiet=not self.verbose
        )
        return {"resources": resources, "callback": combine_callbacks(self.callbacks)}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_trained"}
