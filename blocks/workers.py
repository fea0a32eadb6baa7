"""Worker processes: a new interpreter loads and compiles everything once, then forks the workers from itself.

The calling process, which may have threads, is never forked; the new interpreter has no other threads. Messages are
Python objects sent over socket pairs. A worker exits when its caller is gone and its socket closes; a caller notices a
dead worker in the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NoReturn

from blocks import interpreters, stderr
from blocks.errors import OocError, WorkFailed, out_of_memory

_DEADLINE = 600.0  # seconds without any answer after which the workers count as hung
_GLANCE = 10.0  # maximum seconds counted per poll: all processes, or the machine, may have been suspended
_GRACE = 5.0  # seconds that a worker may take to exit
_AT_ONCE = 1 << 14  # size of a message in bytes that fits in a socket's buffer even if the worker is busy
_GONE = (EOFError, OSError)  # raised by a connection whose other end is closed, between messages or within one

_live: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_ahead: list[tuple[subprocess.Popen[bytes], Connection]] = []  # started interpreters that no WorkerPool use yet


class WorkerDied(WorkFailed):
    """A worker process has died."""


class WorkerPool:
    """`count` processes that answer messages with `handler(message)`.

    target: "module:function"; `function(argument)` is called once, before the workers are forked, and returns the
        handler. It may import and compile, but must not start threads. An OocError in the handler is raised again here,
        and other errors as WorkFailed with the worker's traceback.
    inherit: descriptors to pass to the workers.
    """

    def __init__(self, target: str, argument: Any, count: int, *, inherit: Collection[int] = ()) -> None:
        self._process, self._control = _ahead.pop() if _ahead and not inherit else _start_interpreter(inherit)
        pairs = [socket.socketpair() for _ in range(count)]
        self._connections = [Connection(ours.detach()) for ours, _ in pairs]
        self._asked: list[deque[Any]] = [deque() for _ in range(count)]  # unanswered messages, oldest first
        self._senders = [ThreadPoolExecutor(1) for _ in range(count)]
        self._sending: list[Future[None] | None] = [None] * count
        self.pids: list[int] = []
        _live.add(self)
        try:
            self.pids = [self._process.pid, *self._started(target, argument, [theirs for _, theirs in pairs])]
        except BaseException:  # including KeyboardInterrupt
            self.close()
            raise

    def _started(self, target: str, argument: Any, theirs: list[socket.socket]) -> list[int]:
        try:
            self._control.send((target, argument, len(theirs), stderr.current_log_format()))
            for end in theirs:
                send_handle(self._control, end.fileno(), self._process.pid)
            answer = self._control.recv()
        except _GONE:
            raise WorkerDied("the worker processes did not start") from None
        finally:
            for end in theirs:
                end.close()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def __len__(self) -> int:
        return len(self._connections)

    def send(self, worker: int, message: Any) -> None:
        """Send a message to a worker; one more message may wait while the worker is busy.

        A large message is sent by a thread, as the worker may be sending an answer that must be read meanwhile.
        """
        self._asked[worker].append(message)
        packed, before = pickle.dumps(message, protocol=-1), self._sending[worker]
        if len(packed) > _AT_ONCE or (before and not before.done()):
            self._sending[worker] = self._senders[worker].submit(self._connections[worker].send_bytes, packed)
            return
        try:
            self._connections[worker].send_bytes(packed)
        except _GONE:
            self._report_death(worker)

    def receive(
        self,
        timeout: float = _DEADLINE,
        wake: Connection | None = None,
        progress: Callable[[], object] = lambda: None,
    ) -> Iterator[tuple[int, Any, Any]]:
        """Wait for answers; yield (worker, message, answer) for each.

        wake: another connection whose messages end the wait and are dropped.
        progress: function whose result changes as long as workers make progress.
        Raises WorkerDied if a worker is gone, and WorkFailed if no worker answers or makes progress within `timeout`
        seconds (after printing the stacks of all workers).
        """
        sources, known, left = [*self._connections, *([wake] if wake else [])], None, timeout
        while not (ready := _readable(sources, glance := min(left, _GLANCE))) and left > 0:
            left -= glance
            if known != (now := progress()):
                known, left = now, timeout
        if not ready:
            self.dump_stacks()
            raise WorkFailed(
                f"no worker process has answered for {timeout:.0f} seconds; "
                f"their tasks are {'; '.join(str(asked[0]) for asked in self._asked if asked)}",
                "The stacks of all processes are printed above. A run can be resumed from its last saved state.",
            )
        for connection in ready:
            if connection is wake:
                wake.recv_bytes()
                continue
            worker = self._connections.index(connection)
            try:
                answer = self._connections[worker].recv()
            except _GONE:
                self._report_death(worker)
            if isinstance(answer, BaseException):
                raise answer
            yield worker, self._asked[worker].popleft(), answer

    def ask(self, worker: int, message: Any) -> Any:
        """Send a message to an idle worker and wait for the answer."""
        self.send(worker, message)
        return next(answer for _, _, answer in self.receive())

    def map_unordered(self, messages: Iterable[Any], *, ahead: int = 2) -> Iterator[tuple[Any, Any]]:
        """Distribute messages to free workers, at most `ahead` each; yield (message, answer) in order of completion."""
        source = iter(messages)
        for turn, message in enumerate(islice(source, ahead * len(self))):
            self.send(turn % len(self), message)
        while any(self._asked):
            for worker, message, answer in self.receive():
                for following in islice(source, 1):
                    self.send(worker, following)
                yield message, answer

    def _report_death(self, worker: int) -> None:
        status = "no status"
        while self._control.poll(1.0):
            try:
                number, status = self._control.recv()
            except _GONE:
                status = "killed together with the other workers"
                break
            if number == worker:
                break
        at = f"its task was {self._asked[worker][0]}" if self._asked[worker] else "it had no task"
        raise WorkerDied(f"worker {worker} of {len(self)} (process {self.pids[worker + 1]}) died: {status}; {at}")

    def map_numbered(self, messages: Iterable[Any], done: Callable[[], object] = lambda: None) -> list[Any]:
        """Distribute messages that have a `number`; return the answers in numerical order.

        done: function called after each answer.
        """
        answers = {}
        for message, answer in self.map_unordered(messages):
            answers[message.number] = answer
            done()
        return [answers[number] for number in sorted(answers)]

    def dump_stacks(self) -> None:
        """Make every worker print its stack to standard error."""
        for pid in self.pids[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)

    def go_on(self) -> None:
        """Resume the workers that were stopped (SIGSTOP); no effect on others."""
        for pid in (self._process.pid, *self.pids[1:]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End all workers after their current message; kill them after a few seconds."""
        _live.discard(self)
        self.go_on()
        for connection, sender in zip(self._connections, self._senders, strict=True):
            if not connection.closed:
                _hang_up(connection)
            sender.shutdown(cancel_futures=True)
            connection.close()
        self._control.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            if not self.pids:  # the interpreter may still be preparing or forking, and must not fork any more
                self._process.send_signal(signal.SIGSTOP)
            _kill_children(self._process.pid)
            if self.pids:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE)  # the interpreter exits after its last worker
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _readable(connections: Collection[Connection], timeout: float) -> list[Connection]:
    """Return the connections that can be read, after up to `timeout` seconds.

    `multiprocessing.connection.wait` does the same in 60 microseconds rather than 5.
    """
    by_descriptor, poll = {each.fileno(): each for each in connections}, select.poll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    return [by_descriptor[descriptor] for descriptor, _ in poll.poll(1000 * timeout)]


def resume_stopped_workers() -> None:
    """Resume all stopped workers, so that a command does not wait for them when it ends."""
    for workers in list(_live):
        workers.go_on()


def stopped_workers() -> list[int]:
    """Return the process ids of workers that are stopped (SIGSTOP)."""
    import psutil  # slow to import and rarely needed

    found = []
    for pid in [pid for workers in list(_live) for pid in workers.pids]:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                found.append(pid)
    return found


def start_first_interpreter(target: str) -> None:
    """Start the interpreter for the first WorkerPool without inherited descriptors, and call "module:function" in it
    early.

    Errors are reported when the workers are needed.
    """
    _ahead.append(_start_interpreter())
    process, control = _ahead[-1]
    atexit.register(process.kill)
    control.send(target)


def _start_interpreter(inherit: Collection[int] = ()) -> tuple[subprocess.Popen[bytes], Connection]:
    """Start an interpreter that will fork workers; return the process and its control connection."""
    return interpreters.start_interpreter("blocks.workers", inherit=inherit)


def _kill_children(pid: int) -> None:
    """Kill the child processes of a process."""
    import psutil  # slow to import and rarely needed

    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            child.kill()


def _hang_up(connection: Connection) -> None:
    """Shut down a connection, which ends all reads and writes in any thread."""
    with socket.socket(fileno=os.dup(connection.fileno())) as end, contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _resolve(target: str) -> Callable[..., Any]:
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)


def _template(control: Connection) -> None:
    """Main function of the interpreter: prepare the handler, fork the workers, and report how each of them ended."""
    try:
        request = control.recv()
        if isinstance(request, str):
            with contextlib.suppress(Exception):
                _resolve(request)()
            request = control.recv()
        target, argument, count, log_format = request
        descriptors = [recv_handle(control) for _ in range(count)]
    except _GONE:
        return
    stderr.set_log_format(log_format)
    try:
        handler = _prepare(target, argument)
    except BaseException as error:
        with contextlib.suppress(*_GONE):
            control.send(worker_failure(error))
        return
    _fork(handler, control, descriptors)


def _prepare(target: str, argument: Any) -> Callable[[Any], Any]:
    handler = _resolve(target)(argument)
    if threading.active_count() != 1:
        raise WorkFailed(f"{target} started threads; a process with threads cannot be forked")
    return handler


def _fork(handler: Callable[[Any], Any], control: Connection, descriptors: list[int]) -> None:
    """Fork a worker for each descriptor; return when the last worker has exited."""
    gc.collect()
    gc.freeze()
    numbers: dict[int, int] = {}
    for number, descriptor in enumerate(descriptors):
        pid = os.fork()
        if pid == 0:
            for other in (control.fileno(), *descriptors):
                if other != descriptor:
                    os.close(other)
            _work_and_exit(Connection(descriptor), handler)
        numbers[pid] = number
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(OSError):
        control.send(list(numbers))
    while numbers:
        pid, status = os.wait()
        if pid in numbers:
            with contextlib.suppress(OSError):
                control.send((numbers.pop(pid), _ending(status)))


def _work_and_exit(connection: Connection, handler: Callable[[Any], Any]) -> NoReturn:
    """Run a worker, then exit without running the exit handlers of the parent process."""
    code = 1
    try:
        _work(connection, handler)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _work(connection: Connection, handler: Callable[[Any], Any]) -> None:
    if hasattr(os, "SCHED_BATCH"):  # so that it does not preempt the caller, which is dispatching work: saves 0.5 ms
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if sys.stderr is not None:  # None if the parent process has closed it
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)
    while True:
        try:
            message = connection.recv()
        except _GONE:
            return
        try:
            answer = handler(message)
        except BaseException as error:
            answer = worker_failure(error)
        try:
            connection.send(answer)
        except _GONE:
            return


def worker_failure(error: BaseException) -> OocError:
    """Return the error for a worker's caller to raise: an OocError unchanged, any other as WorkFailed with its
    traceback."""
    if isinstance(error, OocError):
        return error
    mistake = WorkFailed(f"a worker process failed: {error!r}", "This is a bug in ooc; --debug shows the traceback.")
    failed = out_of_memory(error) or mistake
    failed.add_note("".join(traceback.format_exception(error)))
    return failed


def _ending(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


if __name__ == "__main__":
    interpreters.ours = True
    _template(Connection(int(sys.argv[1])))
