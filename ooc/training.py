"""Train a program: iterations with commits, metrics, progress and an orderly stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

from blocks.errors import WorkFailed
from blocks.files import publish_directory
from blocks.kinds import open_rows
from blocks.progress_bar import ProgressBar
from blocks.stored_dataset import StoredDataset
from ooc.engine import StaticEngine
from ooc.plan.memory_plan import MemoryPlan
from ooc.ring.ring import Ring
from ooc.runs.run import Run
from ooc.slurm import node_directory
from ooc.state.cell_layout import CellLayout
from ooc.state.generations import StateGenerations, TrainingCursor
from ooc.training_loop import (
    CheckpointSchedule,
    StopRequest,
    add_line,
    end_training,
    inform_ranks_of_errors,
    interruption,
    naming_iteration,
    rewind_metrics,
    run_steps,
    training_lock,
)
from ooc.user_programs import user_errors

PURPOSES = ("sampling", "disk", "network", "aggregation", "commit")  # purposes of the time of an iteration
_SHOWN = {  # metrics that the progress bar shows
    "objective": "objective {:.6g}",
    "log_likelihood_per_token": "log-likelihood {:.4f}",
    "rmse": "RMSE {:.4f}",
    "held_out_log_likelihood_per_token": "held-out {:.4f}",
    "held_out_rmse": "held-out RMSE {:.4f}",
}


class TrainingObserver(Protocol):
    """Hooks of a model into its training: additional metrics, and publishing of the model."""

    def observe(self, engine: StaticEngine, line: dict[str, Any]) -> dict[str, Any]:
        """Return additional metrics for an iteration with an objective; if the metric `converged` is true, training
        ends.

        The result depends only on the state and the previous lines. The method may call sweeps and exports of `engine`,
        but must not change the state; its time is not counted.
        """
        ...

    def finish(self, engine: StaticEngine) -> None:
        """Publish the model of a finished run; called again after a kill."""
        ...


Callback = Callable[[dict[str, Any]], object]  # called with each line of the metrics; a true result ends training


def publish_model(run: Run, engine: StaticEngine) -> None:
    """Publish the model of the engine's current state as the result of a run."""
    publish_export(engine, run.path / "model")


def publish_export(engine: StaticEngine, path: Path) -> None:
    """Publish the model of the engine's current state in a directory, on rank 0."""
    if not engine.is_first:
        engine.export(path)
        return
    with publish_directory(path, overwrite=True) as directory:
        engine.export(directory)


def train(
    run: Run,
    plan: MemoryPlan,
    *,
    max_time: float | None = None,
    quiet: bool = False,
    observer: TrainingObserver | None = None,
    callback: Callback | None = None,
    ring: Ring | None = None,
) -> dict[str, Any]:
    """Train a run from its newest generation to its configured number of iterations, then write its model.

    ring: machines that train together, each with its own run and shard; rank 0 writes the model.
    max_time: seconds after which to stop as if interrupted.
    callback: called after each iteration; a true result ends training.
    Returns the last line of the metrics. After committing everything, raises Interrupted on SIGINT, SIGTERM or SIGHUP,
    and TimeOver after max_time.
    """
    stop = StopRequest(max_time)
    dataset = run.dataset(open_rows)
    with training_lock(run, stop):
        run.warn_of_changed_program()
        program = run.spec.build(dataset)
        run.require_same_state(program)
        layout = CellLayout(dataset.cells, program.local_state())
        generations = StateGenerations.to_write(run.scratch / "state", dataset, layout, run.require_in_place)
        begins = dataset, run.spec, generations, plan
        with (
            StaticEngine(*begins, ring=ring, **_of_ring(run)) as engine,
            inform_ranks_of_errors(ring),
            user_errors(engine.program),
        ):
            if not _start(engine, stop, quiet=quiet, log=run.log_in_place):
                told = "before the first iteration; nothing was saved yet"
                raise interruption(run, stop.reason() or "rank 0", told, f"Start again with: {run.how_to_resume}", ring)
            for warning in generations.warnings:
                run.log(warning)
            run.log(f"at iteration {engine.cursor.iteration}; {'; '.join(plan.reasons)}")
            training = PhaseTraining(run, engine, dataset, observer, callback, budget=plan.budget)
            reason = run_steps(run, training, stop, quiet=quiet)
    return end_training(run, training, reason, ring)


def _of_ring(run: Run) -> dict[str, Any]:
    """Return the settings of the ring from the settings of a run."""
    settings = run.config["settings"]
    return {"staleness": settings.get("staleness"), "scratch": node_directory() if settings.get("on_node") else None}


def _start(engine: StaticEngine, stop: StopRequest, *, quiet: bool, log: Callable[[str], None]) -> bool:
    """Start the engine, unless a signal arrives. max_time does not apply, because short runs must make progress
    too."""
    with ProgressBar("start", engine.start_stages(), "stage", quiet=quiet, log=log) as progress:

        def gives_up() -> object:
            progress.update()
            return stop.signals

        return engine.start(gives_up)


class PhaseTraining:
    """The iterations of one run in one process, as `TrainingSteps`, with their metrics. A step is a phase."""

    unit = "iteration"

    def __init__(
        self,
        run: Run,
        engine: StaticEngine,
        dataset: StoredDataset,
        observer: TrainingObserver | None,
        callback: Callback | None,
        *,
        budget: int,
    ) -> None:
        self._run, self._engine, self._dataset = run, engine, dataset
        self._observer, self._callback, self._budget = observer, callback, budget
        self._enough, self.total, self.gather = False, run.config["iterations"], engine.gather
        iteration = engine.cursor.iteration
        if iteration > run.config["iterations"]:
            raise WorkFailed(
                f"{run.path}: the state is at iteration {iteration}, but the run has only {run.config['iterations']}",
                "Restore the run from a copy, or train again.",
            )
        self._told = self._go_back_to(iteration)
        # A generation lacks the time of its own commit; the line of its iteration includes it if state is streamed.
        engine.cursor.elapsed_s = max(engine.cursor.elapsed_s, self._told["elapsed_s"])
        if any(engine.gather(self._told["iteration"] < iteration)):  # killed between a commit and its line of metrics
            self._told = self._go_back_to(iteration - 1)
            self._tell()

    def _go_back_to(self, iteration: int) -> dict[str, Any]:
        """Go back to the metrics of an iteration, if there are any, and return its line."""
        started = self.cursor.elapsed_s if self.cursor.iteration == 0 else 0.0
        return rewind_metrics(self._run, iteration, {"iteration": 0, "elapsed_s": started})

    @property
    def cursor(self) -> TrainingCursor:
        return self._engine.cursor

    @property
    def done(self) -> bool:
        """Return whether training is done: after the last iteration, on convergence, or at the caller's request."""
        if self.cursor.phase:
            return False
        converged = self._told.get("converged") and self._told["iteration"] > self._run.config["extended_at"]
        return self.cursor.iteration >= self.total or self._enough or bool(converged)

    @property
    def position(self) -> str:
        return f"at iteration {self.cursor.iteration}"

    @property
    def may_stop(self) -> bool:
        return self._engine.may_stop

    @property
    def _ends(self) -> bool:
        """Return whether the next phase is the last one of its iteration."""
        return self.cursor.phase == len(self._engine.program.phases) - 1

    def is_due(self, checkpoints: CheckpointSchedule) -> bool:
        return self._ends and (checkpoints.due or self.cursor.iteration + 1 >= self.total)

    def begin(self) -> None:
        """Log that the engine has started."""

    def step(self, checkpoints: CheckpointSchedule, *, due: bool) -> str | None:
        engine, ends = self._engine, self._ends
        if due or engine.commits:
            self._run.sync_metrics()  # the metrics of a generation must survive a power failure as the generation does
        with checkpoints.ended(due) if ends else nullcontext(), naming_iteration(self.cursor.iteration + 1):
            engine.step(checkpoint=due)
        if not ends:
            return None
        shown = self._tell()
        if due and not engine.committed:
            with checkpoints.taken():
                self.commit()
        return shown

    def commit(self) -> None:
        self._run.sync_metrics()
        self._engine.commit()

    def finish(self) -> None:
        with naming_iteration(self.cursor.iteration):
            self._observer.finish(self._engine) if self._observer else publish_model(self._run, self._engine)

    def _tell(self) -> str:
        """Add the metrics of the finished iteration, and return the text of the progress bar."""
        cursor, config, told = self._engine.cursor, self._run.config, self._engine.counters()
        seconds = told.elapsed_s - self._told["elapsed_s"]
        line: dict[str, Any] = {
            "iteration": cursor.iteration,
            "elapsed_s": round(told.elapsed_s, 6),
            self._dataset.rate: round(told.samples / seconds) if seconds > 0 else 0,
            **{f"{purpose}_s": round(told.seconds.get(purpose, 0.0), 6) for purpose in (*PURPOSES, "page_cache")},
            **{name: value / told.samples for name, value in told.sums.items()},
            "samples_processed": told.samples_processed,
            "memory_bytes": max(told.memory_bytes),
            **({"budget_bytes": self._budget} if self._budget else {}),
            "bytes_read": told.bytes_read,
            "bytes_written": told.bytes_written,
            "bytes_sent": told.bytes_sent,
        }
        if cursor.iteration % config["evaluate_every"] == 0 or cursor.iteration >= config["iterations"]:
            with naming_iteration(cursor.iteration):
                line |= self._engine.objective()
            if self._observer:
                line |= self._observer.observe(self._engine, line)
        self._told = line = add_line(self._run, line, is_first=self._engine.is_first)
        self._enough = bool(self._callback and self._callback(line))
        cursor.seconds = {}
        return self._shown(line)

    def _shown(self, line: dict[str, Any]) -> str:
        rate = self._dataset.rate
        speed = f"{line[rate] / 1e6:.1f}M {rate.removesuffix('_per_s')}/s"
        values = [told.format(line[name]) for name, told in _SHOWN.items() if name in line]
        return ", ".join([speed, f"{line['memory_bytes'] / 1e6:.0f} MB", *values])
