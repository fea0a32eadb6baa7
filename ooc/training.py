"""Training: iterations of a program until they are enough, with commits, metrics, progress and an orderly stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from blocks.errors import Diverged, Interrupted, TimeOver, WorkFailed
from blocks.files import disk_errors, publish_directory
from blocks.interpreters import ENDING
from blocks.kinds import open_rows
from blocks.progress_bar import ProgressBar
from blocks.store import Store
from blocks.workers import let_all_go_on
from ooc import metrics_file
from ooc.batch import node_directory
from ooc.engine import StaticEngine
from ooc.plan import Plan
from ooc.ring.ring import Ring
from ooc.run import Run
from ooc.state import Generations, layout_of

CHECKPOINT_S = 60.0  # seconds of work that a kill may cost when the state is in memory
CHECKPOINT_SHARE = 0.05  # of the time, at most, goes into checkpoints
PURPOSES = ("sampling", "disk", "network", "aggregation", "commit")  # of the time of an iteration
_SHOWN = {  # values of a line that the progress bar shows
    "objective": "objective {:.6g}",
    "log_likelihood_per_token": "log-likelihood {:.4f}",
    "rmse": "RMSE {:.4f}",
    "held_out_log_likelihood_per_token": "held-out {:.4f}",
    "held_out_rmse": "held-out RMSE {:.4f}",
}
MAX_TIME = "--max-time"  # a reason to stop


@dataclass
class Stop:
    """Why the training should stop after the phase at hand: a signal, or no time left."""

    deadline: float = float("inf")
    signals: list[int] = field(default_factory=list)
    signalled: float = float("inf")  # when the first of these came

    def is_overdue(self, seconds: float) -> bool:
        """Whether there has been a reason for so long."""
        return time.monotonic() > min(self.deadline, self.signalled) + seconds

    def reason(self) -> str | None:
        if self.signals:
            return signal.Signals(self.signals[0]).name
        return MAX_TIME if time.monotonic() > self.deadline else None


def interruption(run: Run, reason: str | None, told: str, remedy: str, ring: Ring | None) -> Interrupted:
    """What to raise where a training stops for a reason. told: what is saved.

    ring: of its machines the first has what `--json` tells.
    """
    kind = TimeOver if reason == MAX_TIME else Interrupted
    facts = {"run": str(run.path), "stopped": reason, **run.last_metrics()}
    return kind(f"stopped by {reason} {told}", remedy, None if ring and ring.rank else facts)


class Observer(Protocol):
    """What the caller of a training adds to it."""

    def observe(self, engine: StaticEngine, line: dict[str, Any]) -> dict[str, Any]:
        """More values for a line of the metrics that has the objective, by the present state.

        `converged`, if true, ends the training. A function of the state and of the lines before. `engine` can be asked
        for sweeps and exports; it is changed by neither, and the time they take does not count.
        """
        ...

    def finish(self, engine: StaticEngine) -> None:
        """Publish the model of a training that is done; done again after a kill."""
        ...


Callback = Callable[[dict[str, Any]], object]  # is given each line of the metrics; what is true ends the training


def publish_model(run: Run, engine: StaticEngine) -> None:
    """Publish the model of the engine's present state as the result of a run."""
    publish_export(engine, run.path / "model")


def publish_export(engine: StaticEngine, path: Path) -> None:
    """Publish the model of the engine's present state in a directory; of several machines the first one has it."""
    if not engine.is_first:
        engine.export(path)
        return
    with publish_directory(path, overwrite=True) as directory:
        engine.export(directory)


def train(
    run: Run,
    plan: Plan,
    *,
    max_time: float | None = None,
    quiet: bool = False,
    observer: Observer | None = None,
    callback: Callback | None = None,
    ring: Ring | None = None,
) -> dict[str, Any]:
    """Train a run to its configured iterations, from where its newest generation stands, then write its model.

    ring: of machines that train it together, each with a run of its own over its shard; the first writes the model.
    max_time: seconds after which to stop as if interrupted. callback: called after each iteration; what it returns, if
    true, makes this iteration the last. Returns the last line of the metrics.
    With everything committed, raises Interrupted after SIGINT, SIGTERM or SIGHUP, TimeOver after max_time.
    """
    stop = Stop(time.monotonic() + max_time if max_time else float("inf"))
    dataset = run.dataset(open_rows)
    with run.locked(), noted_signals(stop), resumable(run), disk_errors(run.path):
        run.warn_of_changed_program()
        layout = layout_of(dataset, run.spec.build(dataset).local_state())
        generations = Generations.to_write(run.scratch / "state", dataset, layout, run.require_in_place)
        begins = dataset, run.spec, generations, plan
        with StaticEngine(*begins, ring=ring, **_of_ring(run)) as engine, together(ring):
            if not _start(engine, stop, quiet=quiet, log=run.log_in_place):
                told = "before the first iteration: there was nothing to save yet"
                raise interruption(run, stop.reason(), told, f"Begin again with: ooc resume {run.path}", ring)
            for warning in generations.warnings:
                run.log(warning)
            run.log(f"at iteration {engine.cursor.iteration}; {'; '.join(plan.reasons)}")
            training = Training(run, engine, dataset, observer, callback, budget=plan.budget, quiet=quiet)
            reason = training.iterate(stop)
            if reason is None:
                run.require_in_place()
                with naming(engine.cursor.iteration):
                    observer.finish(engine) if observer else publish_model(run, engine)
                run.set_finished()
    run.log(f"{f'stopped by {reason}' if reason else 'done'} at iteration {engine.cursor.iteration}")
    if reason:
        told = f"at iteration {engine.cursor.iteration}; everything is saved"
        raise interruption(run, reason, told, f"Go on with: ooc resume {run.path}", ring)
    return run.last_metrics()


def _of_ring(run: Run) -> dict[str, Any]:
    """What the settings of a run say of the ring."""
    settings = run.config["settings"]
    return {"staleness": settings.get("staleness"), "scratch": node_directory() if settings.get("on_node") else None}


def _start(engine: StaticEngine, stop: Stop, *, quiet: bool, log: Callable[[str], None]) -> bool:
    """Start the engine, unless a signal comes; but not for max_time: short trainings must come to an end, too."""
    with ProgressBar("start", engine.start_stages(), "stage", quiet=quiet, log=log) as progress:

        def gives_up() -> object:
            progress.update()
            return stop.signals

        return engine.start(gives_up)


class Checkpoints:
    """When state in memory is to be made durable: once a minute, but less often if that takes much of the time."""

    def __init__(self) -> None:
        self._last, self._cost = time.monotonic(), 0.0
        self._usual: float | None = None  # seconds of the last phase of an iteration that had no checkpoint

    @property
    def due(self) -> bool:
        return time.monotonic() - self._last > max(CHECKPOINT_S, self._cost / CHECKPOINT_SHARE)

    @contextmanager
    def ended(self, checkpoint: bool) -> Iterator[None]:
        """The last phase of an iteration, with a checkpoint beside it or not: it costs what the phase takes longer."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        if checkpoint:
            self._last, self._cost = now, now - began - (self._usual or now - began)
        else:
            self._usual = now - began

    @contextmanager
    def taken(self) -> Iterator[None]:
        """A checkpoint that nothing else goes on beside."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._cost = self._last - began


class Training:
    """The iterations of one run in one process, and what is told of them."""

    def __init__(
        self,
        run: Run,
        engine: StaticEngine,
        dataset: Store,
        observer: Observer | None,
        callback: Callback | None,
        *,
        budget: int,
        quiet: bool,
    ) -> None:
        self._run, self._engine, self._dataset = run, engine, dataset
        self._observer, self._callback, self._budget, self._quiet = observer, callback, budget, quiet
        self._enough = False
        iteration = engine.cursor.iteration
        if iteration > run.config["iterations"]:
            raise WorkFailed(
                f"{run.path}: the state is of iteration {iteration}, but the run has {run.config['iterations']}",
                "Restore both from a copy; or train again.",
            )
        self._told = self._go_back_to(iteration)
        # A generation does not know what its own commit took; the line of its iteration does, where it is streamed.
        engine.cursor.elapsed_s = max(engine.cursor.elapsed_s, self._told["elapsed_s"])
        if any(engine.gather(self._told["iteration"] < iteration)):  # killed between its commit and its line
            self._told = self._go_back_to(iteration - 1)
            self._tell()

    def _go_back_to(self, iteration: int) -> dict[str, Any]:
        """Go back to the line of an iteration, if there is any; returns it."""
        self._run.keep_metrics(iteration)
        started = self._engine.cursor.elapsed_s if self._engine.cursor.iteration == 0 else 0.0
        return self._run.metrics()[-1] if self._run.metrics() else {"iteration": 0, "elapsed_s": started}

    def iterate(self, stop: Stop) -> str | None:
        """Do the iterations that are left; returns why it stopped before they were done, or None."""
        engine, iterations = self._engine, self._run.config["iterations"]
        checkpoints, reason = Checkpoints(), None
        with ProgressBar(
            "training",
            iterations,
            "iteration",
            initial=engine.cursor.iteration,
            quiet=self._quiet,
            leave=True,
            log=self._run.log_in_place,
        ) as progress:
            while engine.cursor.phase or (engine.cursor.iteration < iterations and not self._is_over()):
                ends = engine.cursor.phase == len(engine.program.phases) - 1
                due = ends and (checkpoints.due or engine.cursor.iteration + 1 >= iterations)
                reasons, dues = zip(*engine.gather([stop.reason() if engine.may_stop else None, due]), strict=True)
                if reason := next(filter(None, reasons), None):
                    break
                due = dues[0]
                if due or engine.commits:
                    self._run.sync_metrics()  # lines that a generation stands for must outlive a power cut as it does
                with checkpoints.ended(due) if ends else nullcontext(), naming(engine.cursor.iteration + 1):
                    engine.step(checkpoint=due)
                if not ends:
                    continue
                progress.set_postfix_str(self._tell())
                progress.update()
                if due and not engine.committed:
                    with checkpoints.taken():
                        self._commit()
        self._commit()
        return reason

    def _is_over(self) -> bool:
        converged = self._told.get("converged") and self._told["iteration"] > self._run.config["extended_at"]
        return self._enough or bool(converged)

    def _commit(self) -> None:
        self._run.sync_metrics()
        self._engine.commit()

    def _tell(self) -> str:
        """Add the line of the iteration just done to the metrics; returns what the progress bar shows of it."""
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
            with naming(cursor.iteration):
                line |= self._engine.objective()
            if self._observer:
                line |= self._observer.observe(self._engine, line)
        self._told = line = self._run.add_metrics(line)
        if self._engine.is_first:
            metrics_file.tell(self._run, line)
        self._enough = bool(self._callback and self._callback(line))
        cursor.seconds = {}
        return self._shown(line)

    def _shown(self, line: dict[str, Any]) -> str:
        rate = self._dataset.rate
        speed = f"{line[rate] / 1e6:.1f}M {rate.removesuffix('_per_s')}/s"
        values = [told.format(line[name]) for name, told in _SHOWN.items() if name in line]
        return ", ".join([speed, f"{line['memory_bytes'] / 1e6:.0f} MB", *values])


@contextmanager
def together(ring: Ring | None) -> Iterator[None]:
    """Have the others hear of a failure before anything is waited for that they will not do any more."""
    try:
        yield
    except BaseException as error:
        if ring and not isinstance(error, Interrupted):
            ring.fail(str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise


@contextmanager
def resumable(run: Run) -> Iterator[None]:
    """Say how to go on after a failure that does not say it itself, and whether the run or its dataset is gone."""
    try:
        yield
    except WorkFailed as error:
        try:
            run.require_in_place()
        except WorkFailed as cause:
            raise cause from error
        error.remedy = error.remedy or f"Everything that was committed is safe. Go on with: ooc resume {run.path}"
        raise


@contextmanager
def naming(iteration: int) -> Iterator[None]:
    """Say in which iteration a model diverged."""
    try:
        yield
    except Diverged as error:
        error.what = f"iteration {iteration}: {error.what}"
        raise


@contextmanager
def noted_signals(stop: Stop) -> Iterator[None]:
    """Note SIGINT, SIGTERM and SIGHUP (a terminal that is gone) in `stop`; a second one ends the process as usual.

    Only the main thread gets signals. One that is ignored, as SIGHUP under nohup, stays so.
    """

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signals:
            handler = before[signal.Signals(number)]
            (handler if callable(handler) else signal.default_int_handler)(number, frame)
        stop.signals.append(number)
        stop.signalled = min(stop.signalled, time.monotonic())
        let_all_go_on()
        if number == signal.SIGHUP and os.isatty(2):  # nothing can be written to a terminal that is gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
