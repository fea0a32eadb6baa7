"""Training loop: steps with commits, metrics, progress and an orderly stop.

Each kind of training loop implements `TrainingSteps`, such as the iterations of an engine (`ooc.training`) or the
lambdas of a path.
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

from blocks.errors import Interrupted, ModelDiverged, OocError, RequestError, TimeLimitReached, WorkFailed
from blocks.files import disk_errors
from blocks.interpreters import ENDING
from blocks.progress_bar import ProgressBar
from blocks.workers import resume_stopped_workers
from ooc.ring.ring import Ring, error_reason
from ooc.runs import metrics_file
from ooc.runs.earlier_run import drop_earlier, keeps_earlier, put_back
from ooc.runs.run import Run
from ooc.slurm import BatchJobTimeLimit
from ooc.state.generations import TrainingCursor

CHECKPOINT_S = 60.0  # seconds of work that may be lost in a kill when the state is in memory
CHECKPOINT_SHARE = 0.05  # maximum fraction of the time spent on checkpoints
MAX_TIME, JOB_END = "--max-time", "the end of the job"  # reasons to stop


@dataclass
class StopRequest:
    """The reason to stop after the current step: a signal, or no time left.

    max_time: seconds from now, a BatchJobTimeLimit if a batch scheduler sets the limit; None for no limit.
    """

    max_time: InitVar[float | None] = None
    signals: list[int] = field(default_factory=list)
    signalled: float = math.inf  # time of the first signal

    def __post_init__(self, max_time: float | None) -> None:
        self.deadline = time.monotonic() + max_time if max_time else math.inf
        self._limit = JOB_END if isinstance(max_time, BatchJobTimeLimit) else MAX_TIME

    def is_overdue(self, seconds: float) -> bool:
        """Return whether a reason to stop has existed for `seconds` seconds."""
        return time.monotonic() > min(self.deadline, self.signalled) + seconds

    def reason(self) -> str | None:
        if self.signals:
            return signal.Signals(self.signals[0]).name
        return self._limit if time.monotonic() > self.deadline else None


def interruption(run: Run, reason: str | None, told: str, remedy: str, ring: Ring | None) -> Interrupted:
    """Return the exception for a run that stops early.

    told: description of the saved state, for the message.
    ring: on a ring, only the exception of rank 0 carries the data for `--json`.
    """
    kind = TimeLimitReached if reason in (MAX_TIME, JOB_END) else Interrupted
    facts = {"run": str(run.path), "stopped": reason, **run.last_metrics()}
    return kind(f"stopped by {reason} {told}", remedy, None if ring and ring.rank else facts)


class CheckpointSchedule:
    """Decides when to commit state in memory: once a minute, or less often if that takes too much of the time."""

    def __init__(self) -> None:
        self._last, self._cost = time.monotonic(), 0.0
        self._usual: float | None = None  # seconds that the last phase of an iteration takes without a checkpoint

    @property
    def due(self) -> bool:
        return time.monotonic() - self._last > max(CHECKPOINT_S, self._cost / CHECKPOINT_SHARE)

    @contextmanager
    def ended(self, checkpoint: bool) -> Iterator[None]:
        """Measure an iteration's last phase, with or without a checkpoint; the difference is the cost of a
        checkpoint."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        if checkpoint:
            self._last, self._cost = now, now - began - (self._usual or now - began)
        else:
            self._usual = now - began

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Measure a checkpoint that runs on its own."""
        began = time.monotonic()
        yield
        self._last = time.monotonic()
        self._cost = self._last - began


class TrainingSteps(Protocol):
    """The steps of a training loop. An iteration may have several steps."""

    total: int | None  # number of iterations; None if unknown
    unit: str  # unit of the progress bar, such as "iteration"

    @property
    def cursor(self) -> TrainingCursor: ...

    @property
    def done(self) -> bool: ...

    @property
    def position(self) -> str:
        """Return the progress as text, such as "at iteration 7"."""
        ...

    @property
    def may_stop(self) -> bool:
        """Return whether stopping now loses nothing."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON values of all ranks, in rank order."""
        ...

    def is_due(self, checkpoints: CheckpointSchedule) -> bool:
        """Return whether the next step includes a checkpoint."""
        ...

    def begin(self) -> None:
        """Prepare the first step of a new run."""
        ...

    def step(self, checkpoints: CheckpointSchedule, *, due: bool) -> str | None:
        """Run one step, with a checkpoint if due; returns the text of the progress bar, or None if it is unchanged."""
        ...

    def commit(self) -> None:
        """Commit the current state."""
        ...

    def finish(self) -> None:
        """Publish the model of a finished run; called again after a kill."""
        ...


def run_steps(run: Run, steps: TrainingSteps, stop: StopRequest, *, quiet: bool) -> str | None:
    """Run the remaining steps and finish; returns the reason for an early stop, or None."""
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
        checkpoints = CheckpointSchedule()
        while not steps.done:
            own = stop.reason() if steps.may_stop else None, steps.is_due(checkpoints)
            reasons, dues = zip(*steps.gather(own), strict=True)
            if reason := next(filter(None, reasons), None):
                break
            before = steps.cursor.iteration
            shown = steps.step(checkpoints, due=dues[0])
            drop_earlier(run.path)
            if shown is not None:
                progress.set_postfix_str(shown)
                progress.update(steps.cursor.iteration - before)
    steps.commit()
    if reason is None:
        run.require_in_place()
        steps.finish()
        run.set_finished()
        drop_earlier(run.path)
    return reason


def end_training(run: Run, steps: TrainingSteps, reason: str | None, ring: Ring | None) -> dict[str, Any]:
    """Log the end of training, and return the last line of the metrics.

    Raises Interrupted if there is a reason for stopping early.
    """
    run.log(f"{f'stopped by {reason}' if reason else 'done'} {steps.position}")
    if reason:
        saved = f"{steps.position}; everything is saved"
        raise interruption(run, reason, saved, f"Continue with: {run.how_to_resume}", ring)
    return run.last_metrics()


def rewind_metrics(run: Run, iteration: int, start: dict[str, Any]) -> dict[str, Any]:
    """Drop the metrics after an iteration; returns the last remaining line, or `start`."""
    run.keep_metrics(iteration)
    return [start, *run.metrics()][-1]


def add_line(run: Run, line: dict[str, Any], *, is_first: bool) -> dict[str, Any]:
    """Add a line to the metrics and the metrics file, and return the line.

    is_first: whether this is rank 0.
    """
    line = run.add_metrics(line)
    if is_first:
        metrics_file.update_metrics_file(run, line)
    return line


@contextmanager
def training_lock(run: Run, stop: StopRequest) -> Iterator[None]:
    """Hold the lock of a run, record signals in `stop`, and add instructions for continuing to errors.

    A new run whose request turns out to be invalid before anything is committed is removed. If the first step of a
    user's program fails, the run that it has replaced is put back.
    """
    with run.locked():
        try:
            with noted_signals(stop), resumable(run), disk_errors(run.path):
                yield
        except Interrupted:
            raise
        except OocError as error:
            if keeps_earlier(run.path):
                run.require_in_place()
                put_back(run.path)
                error.remedy = f"{error.remedy}\nThe run that was in {run.path} before is back.".lstrip()
            elif isinstance(error, RequestError):
                run.remove_if_new()
            raise


@contextmanager
def inform_ranks_of_errors(ring: Ring | None) -> Iterator[None]:
    """Inform the other ranks of an error before they wait for this rank."""
    try:
        yield
    except BaseException as error:
        if ring and not isinstance(error, Interrupted):
            ring.fail(error_reason(error))
        raise


@contextmanager
def resumable(run: Run) -> Iterator[None]:
    """Add to an error how to continue the run, and whether the run or its dataset has been removed."""
    try:
        yield
    except WorkFailed as error:
        try:
            run.require_in_place()
        except WorkFailed as cause:
            raise cause from error
        if not keeps_earlier(run.path):  # otherwise nothing of this run is kept
            error.remedy = error.remedy or f"Everything committed is safe. Continue with: {run.how_to_resume}"
        raise


@contextmanager
def naming_iteration(iteration: int) -> Iterator[None]:
    """Add the number of the iteration to the error if the model diverges."""
    try:
        yield
    except ModelDiverged as error:
        error.what = f"iteration {iteration}: {error.what}"
        raise


@contextmanager
def noted_signals(stop: StopRequest) -> Iterator[None]:
    """Record SIGINT, SIGTERM and SIGHUP in `stop`; a second signal terminates the process as usual.

    Only the main thread receives signals. Ignored signals, such as SIGHUP under nohup, remain ignored.
    """

    def note(number: int, frame: FrameType | None) -> None:
        if stop.signals:
            handler = before[signal.Signals(number)]
            (handler if callable(handler) else signal.default_int_handler)(number, frame)
        stop.signals.append(number)
        stop.signalled = min(stop.signalled, time.monotonic())
        resume_stopped_workers()
        if number == signal.SIGHUP and os.isatty(2):  # writes to a closed terminal would fail
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
