"""Train a user's program: create a run and a plan from its class and options, and run the engine."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocks.errors import RequestError, WorkFailed, in_parameters
from blocks.kinds import open_any, open_rows
from blocks.memory import parse_size
from blocks.stored_dataset import StoredDataset
from ooc.plan.forecast import generation_bytes
from ooc.program import StaticProgram
from ooc.ring.replication import is_replicated
from ooc.ring.ring import Ring
from ooc.runs.new_run import create_run
from ooc.runs.run import Run
from ooc.state.generations import GENERATIONS
from ooc.training import Callback
from ooc.user_programs import is_dynamic
from ooc.workers.worker import ProgramSpec
from samplers.column_training import plan_columns, train_columns
from samplers.estimators.base import integer_parameter
from samplers.options import ProgramOptions, ResumeOptions, TrainingResources, of_several
from samplers.resume import resume_run
from samplers.ring_checks import check_paths_differ, check_ranks_share
from samplers.training_preparation import check_dataset, check_limits, plan_training, train_planned

if TYPE_CHECKING:
    from ooc.dynamic.program import DynamicProgram

# What corresponds in Python to command-line options, where it is not a parameter of the same name.
_IN_PYTHON = {"workers": "workers", "set": "options", "overwrite": "overwrite=True", "resume": "resume()"}


def train(
    data: Path,
    path: Path,
    options: ProgramOptions,
    resources: TrainingResources,
    ring: Ring | None = None,
    callback: Callback | None = None,
) -> dict[str, Any]:
    """Train a program on the dataset `data` in the new run directory `path`.

    ring: machines that all call this function with the same program and options, each with its own run directory. Each
        machine has the whole dataset and does part of the work; for a program that trains on shards, each has its own
        shard.
    callback: see `ooc.training.train`.
    Returns the last line of the metrics.
    Raises RequestError, before anything is written, if the program cannot be imported or does not have the options.
    """
    ring = of_several(ring)
    spec = ProgramSpec(options.program, _values(options.settings))
    if spec.is_known:
        raise RequestError(f"{spec.target} is a built-in model", "Train it with its own command, see: ooc train --help")
    dynamic = is_dynamic(spec.target)
    dataset = open_any(data) if dynamic else open_rows(data)
    check_limits(spec, resources)
    program = spec.build(dataset)
    if ring:
        if isinstance(program, StaticProgram):
            is_replicated(dataset, program, ring.ranks)
        check_ranks_share(ring, dataset, spec)
        check_paths_differ(ring, path)
    plan: Any = (plan_columns if dynamic else plan_training)(dataset, spec, resources)
    check_dataset(dataset)
    run = create_run(
        path,
        dataset,
        spec,
        iterations=options.iterations,
        evaluate_every=options.evaluate_every,
        settings={"staleness": 0} if ring else {},  # synchronous
        scratch=resources.scratch,
        overwrite=resources.overwrite,
    )
    if dynamic:
        return train_columns(run, plan, resources, ring, callback)
    return train_planned(run, plan, None, resources, ring, callback)


def disk_needed(data: Path, target: str, settings: Sequence[str]) -> int:
    """Return the maximum size in bytes of the generations that a new run of a program keeps on a ring."""
    find_beside()
    dataset = open_any(data)
    program = ProgramSpec(target, _values(settings)).build(dataset)
    return GENERATIONS * generation_bytes(dataset.cells, program)


def find_beside() -> None:
    """Allow imports from the current directory, after installed modules."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def _values(settings: Sequence[str]) -> dict[str, Any]:
    """Parse the options of a program from NAME=VALUE strings."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name.isidentifier():
            raise RequestError(f"--set {setting!r} is not NAME=VALUE", "Write, for example: --set clusters=8")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


class ProgramRun(Run):
    """A run of a user's program, as returned by `fit`; see `ooc.Run` for the methods of every run.

    ``run["left"]`` is an array of the model. To open an existing run: ``ProgramRun(path, "module:Class")``.
    """

    def more(self, iterations: int, **options: Any) -> ProgramRun:
        """Train for `iterations` more iterations.

        options: `ring`, `callback`, `memory` and resources, as for `fit`.
        """
        iterations = integer_parameter("iterations", iterations, 1)
        planned = Run(self.path).config["iterations"]  # another call of `more` may have changed the configuration since
        return self._go_on(planned + iterations, **options)

    def resume(self, **options: Any) -> ProgramRun:
        """Resume after an interruption and train up to the planned number of iterations.

        options: see `more`.
        """
        return self._go_on(None, **options)

    def _go_on(
        self,
        iterations: int | None,
        *,
        ring: Ring | None = None,
        callback: Callback | None = None,
        memory: int | str | None = None,
        **resources: Any,
    ) -> ProgramRun:
        with _naming_parameters():
            options = ResumeOptions(iterations=iterations, program=self.config["program"])
            resume_run(self.path, options, _resources(memory, resources), ring, callback)
        return ProgramRun(self.path, self.config["program"])

    def model(self) -> dict[str, np.ndarray]:
        """Return the arrays of the model by name.

        Raises RequestError if training is not finished.
        """
        if not (found := sorted((self.path / "model").glob("*.npz"))):
            raise RequestError(f"{self.path} has no model yet", "Finish training with resume().")
        arrays: dict[str, np.ndarray] = {}
        for file in found:
            with np.load(file) as content:
                arrays |= content
        return arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self.model()[name]

    def metrics_frame(self) -> Any:
        """Return the metrics as a pandas DataFrame with one row per iteration."""
        from pandas import DataFrame

        return DataFrame(self.metrics()).set_index("iteration")


def _resources(memory: int | str | None, resources: Mapping[str, Any]) -> TrainingResources:
    budget = parse_size(memory, "memory") if isinstance(memory, str) else memory
    converted: dict[str, Any] = {}
    if resources.get("scratch"):
        converted["scratch"] = Path(resources["scratch"])
    if resources.get("workers") is not None:
        converted["workers"] = integer_parameter("workers", resources["workers"], 1)
    return TrainingResources(memory_bytes=budget, **(dict(resources) | converted))


@contextmanager
def _naming_parameters() -> Iterator[None]:
    """Replace command-line options in the messages of errors by parameters, except in commands to run."""
    try:
        yield
    except (RequestError, WorkFailed) as error:
        error.what, error.remedy = _in_python(error.what), _in_python(error.remedy)
        raise


def _in_python(text: str) -> str:
    texts = re.split(r"(\booc [a-z]+ [^`\n]*)", text)  # every second one is a command
    return "".join(part if place % 2 else in_parameters(part, _IN_PYTHON) for place, part in enumerate(texts))


def fit(
    program: type[StaticProgram] | type[DynamicProgram] | str,
    data: str | Path | StoredDataset,
    path: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    iterations: int = 100,
    evaluate_every: int = 1,
    memory: int | str | None = None,
    ring: Ring | None = None,
    callback: Callback | None = None,
    **resources: Any,
) -> ProgramRun:
    """Train a user's program in a new run directory, and return the run.

    Parameters
    ----------
    program : class derived from `StaticProgram`, `StochasticProgram` or `DynamicProgram`, or "module:Class"
        The class must be at the top level of a module in a file, as worker processes import it by name.
    data : str, Path or StoredDataset
        The dataset.
    path : str or Path
        The run directory, which must not exist unless ``overwrite`` is true.
    options : mapping, optional
        Keyword arguments of the program besides the dataset; JSON values.
    iterations : int
        Passes over the data.
    evaluate_every : int
        Iterations between evaluations of the objective.
    memory : int or str, optional
        Memory limit of all processes, in bytes or as "2GB"; four fifths of the free memory by default.
    ring : Ring, optional
        Machines that train together; see `docs/programs.md`.
    callback : callable, optional
        Called with each line of the metrics; training ends when it returns true.
    **resources
        ``workers``, ``max_time`` (seconds), ``scratch``, ``overwrite``, ``quiet``, as on the command line.

    Returns
    -------
    ProgramRun
        ``run["name"]`` is an array of the model, ``run.metrics_frame()`` the metrics of each iteration.

    Raises
    ------
    RequestError
        Before anything is written, if the program cannot be imported or an option is wrong.
    Interrupted, TimeOver
        After a signal or ``max_time`` seconds; the state is committed.
    """
    iterations = integer_parameter("iterations", iterations, 1)
    evaluate_every = integer_parameter("evaluate_every", evaluate_every, 1)
    target = program if isinstance(program, str) else _target(program)
    settings = [f"{name}={json.dumps(value, default=_plain)}" for name, value in (options or {}).items()]
    place = data.opened_at if isinstance(data, StoredDataset) else Path(data)
    with _naming_parameters():
        chosen = ProgramOptions(program=target, settings=settings, iterations=iterations, evaluate_every=evaluate_every)
        train(place, Path(path), chosen, _resources(memory, resources), ring, callback)
    return ProgramRun(Path(path), target)


def _plain(value: Any) -> Any:
    """Return a NumPy number or array as Python numbers, for JSON."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise RequestError(f"options: {value!r} is not a JSON value", "Use numbers, strings, lists and dictionaries.")


def _target(program: type) -> str:
    """Return the name by which other processes import a class.

    Raises RequestError if there is no such name.
    """
    module, name = program.__module__, program.__qualname__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None:
            raise RequestError(
                f"the program {name} is not defined in a file, so worker processes cannot import it",
                "Write it to a file next to the notebook, for example with %%writefile programs.py, and import it.",
            )
        module = Path(file).stem
    if "." in name:
        raise RequestError(f"the program {name} is not at the top level of its module", "Move the class there.")
    return f"{module}:{name}"
