"""The loop of every training: step after step, with commits, metrics, progress, and an orderly stop.

A training is `TrainingSteps`: iterations of an engine (`ooc.training`), or the lambdas of a path.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from types import FrameType
from typing import Any, Protocol

from blocks.errors import Diverged, Interrupted, TimeOver, WorkFailed
from blocks.files import disk_errors
from blocks.interpreters import ENDING
from blocks.progress_bar import ProgressBar
from blocks.workers import let_all_go_on
from ooc.ring.ring import Ring, reason_of
from ooc.runs import metrics_file
from ooc.runs.run import Run
from ooc.slurm import JobTime
from ooc.state.generations import Cursor

CHECKPOINT_S = 60.0  # seconds of work that a kill may cost when the state is in memory
CHECKPOINT_SHARE = 0.05  # of the time, at most, goes into checkpoints
MAX_TIME, JOB_END = "--max-time", "the end of the job"  # reasons to stop


@dataclass
class Stop:
    """Why a training should stop after the step at hand: a signal, or no time left.

    max_time: seconds from now on, a JobTime if a scheduler sets the limit; None if there is none.
    """

    max_time: InitVar[float | None] = None
    signals: list[int] = field(default_factory=list)
    signalled: float = math.inf  # when the first of these came

    def __post_init__(self, max_time: float | None) -> None:
        self.deadline = time.monotonic() + max_time if max_time else math.inf
        self._limit = JOB_END if isinstance(max_time, JobTime) else MAX_TIME

    def is_overdue(self, seconds: float) -> bool:
        """Whether there has been a reason for so long."""
        return time.monotonic() > min(self.deadline, self.signalled) + seconds

    def reason(self) -> str | None:
        if self.signals:
            return signal.Signals(self.signals[0]).name
        return self._limit if time.monotonic() > self.deadline else None


def interruption(run: Run, reason: str | None, told: str, remedy: str, ring: Ring | None) -> Interrupted:
    """What to raise where a training stops for a reason. told: what is saved.

    ring: of its machines the first has what `--json` tells.
    """
    kind = TimeOver if reason in (MAX_TIME, JOB_END) else Interrupted
    facts = {"run": str(run.path), "stopped": reason, **run.last_metrics()}
    return kind(f"stopped by {reason} {told}", remedy, None if ring and ring.rank else facts)


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


class TrainingSteps(Protocol):
    """What the loop does step by step. A step need not complete an iteration."""

    total: int | None  # iterations; None if that is not known
    unit: str  # what the progress bar calls an iteration

    @property
    def cursor(self) -> Cursor: ...

    @property
    def done(self) -> bool: ...

    @property
    def position(self) -> str:
        """How far it has come, as "at iteration 7"."""
        ...

    @property
    def may_stop(self) -> bool:
        """Whether the work so far would survive a stop now."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, of JSON types."""
        ...

    def is_due(self, checkpoints: Checkpoints) -> bool:
        """Whether the next step is to have a checkpoint."""
        ...

    def begin(self) -> None:
        """Do what comes before the first step of a new run."""
        ...

    def step(self, checkpoints: Checkpoints, *, due: bool) -> str | None:
        """Make a step, and a checkpoint if one is due; returns what the progress bar shows, None if nothing new."""
        ...

    def commit(self) -> None:
        """Make the present state durable."""
        ...

    def finish(self) -> None:
        """Publish the model of a training that is done; done again after a kill."""
        ...


def run_steps(run: Run, steps: TrainingSteps, stop: Stop, *, quiet: bool) -> str | None:
    """Make the steps that are left, and finish; returns why they stopped before they were done, or None."""
    reason = None
    with ProgressBar(
        "training",
        steps.total,
        steps.unit,
        initial=steps.cursor.iteration,
        quiet=quiet,
        leave=True,
        log=run.log_in_place,
    ) as progress:
        steps.begin()
        checkpoints = Checkpoints()
        while not steps.done:
            own = stop.reason() if steps.may_stop else None, steps.is_due(checkpoints)
            reasons, dues = zip(*steps.gather(own), strict=True)
            if reason := next(filter(None, reasons), None):
                break
            before = steps.cursor.iteration
            shown = steps.step(checkpoints, due=dues[0])
            if shown is not None:
                progress.set_postfix_str(shown)
                progress.update(steps.cursor.iteration - before)
    steps.commit()
    if reason is None:
        run.require_in_place()
        steps.finish()
        run.set_finished()
    return reason


def conclude(run: Run, steps: TrainingSteps, reason: str | None, ring: Ring | None) -> dict[str, Any]:
    """Log how a training ended; returns the last line of the metrics. Raises Interrupted if there is a reason."""
    run.log(f"{f'stopped by {reason}' if reason else 'done'} {steps.position}")
    if reason:
        saved = f"{steps.position}; everything is saved"
        raise interruption(run, reason, saved, f"Continue with: {run.how_to_resume}", ring)
    return run.last_metrics()


def go_back(run: Run, iteration: int, start: dict[str, Any]) -> dict[str, Any]:
    """Drop the lines of the metrics after an iteration; returns the last one that is left, `start` if none is."""
    run.keep_metrics(iteration)
    return [start, *run.metrics()][-1]


def add_line(run: Run, line: dict[str, Any], *, is_first: bool) -> dict[str, Any]:
    """Add a line to the metrics, and to a file of the newest ones; returns it. is_first: of the ranks of a ring."""
    line = run.add_metrics(line)
    if is_first:
        metrics_file.tell(run, line)
    return line


@contextmanager
def trained(run: Run, stop: Stop) -> Iterator[None]:
    """Hold the lock of a run, note signals in `stop`, and say of failures how to go on."""
    with run.locked(), noted_signals(stop), resumable(run), disk_errors(run.path):
        yield


@contextmanager
def together(ring: Ring | None) -> Iterator[None]:
    """Have the others hear of a failure before anything is waited for that they will not do any more."""
    try:
        yield
    except BaseException as error:
        if ring and not isinstance(error, Interrupted):
            ring.fail(reason_of(error))
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
        error.remedy = error.remedy or f"Everything committed is safe. Continue with: {run.how_to_resume}"
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
