"""Fork processes from an interpreter that has imported the package, because most tests take less time than importing
does.

One process per process of pytest, started by the first test that needs it, imports everything and runs nothing, so that
it has no threads and can be forked: as the command line, with arguments, directory and streams of its own, and as what
`blocks.workers` starts a fresh interpreter for. Only who started them and what was imported differ; tests of just that,
of memory, and of signals to the command line start their processes themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from blocks import interpreters, workers

SELDOM = (50_000, 20, 20)  # for `gc.set_threshold`: the compiler leaves little garbage and much to look through
_MOST = 1 << 17  # bytes of a request
_STATUS = 200  # a descriptor that is in nobody's way
# Of the environment, what counts when a process starts and when modules are imported.
_COUNTS_EARLY = ("HOME", "LD_", "NUMBA_", "OOC_", "PYTHON", "TMPDIR", "XDG_")
_STARTING = threading.Lock()
_ENVIRONMENT = dict(os.environ)  # before any test changes it


class ProcessRequest(NamedTuple):
    """Description of a process to fork.

    places: numbers that the descriptors sent with the request get.
    """

    what: str  # "interpreter", or "guard" of the command line
    arguments: list[str]
    directory: str
    environment: dict[str, str]
    path: list[str]
    places: list[int]


class ForkedProcess:
    """A forked child, with the part of the `subprocess.Popen` interface that tests need."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid, self._descriptor = pid, descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def wait(self, timeout: float | None = None) -> None:
        ended = select.poll()
        ended.register(self._descriptor, select.POLLIN)
        if not ended.poll(timeout if timeout is None else 1000 * timeout):
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)


class ForkServer:
    """Client of the server.

    connection: socket to `_serve`.
    process: the server process, if it is our child.
    """

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._connection, self._lock, self.process = connection, threading.Lock(), process

    def close(self) -> None:
        """Stop forking processes."""
        self._connection.close()
        if self.process:
            self.process.wait()

    def fork(self, what: str, arguments: list[str], directory: Path, descriptors: dict[int, int]) -> ForkedProcess:
        """Fork a process with descriptors, given by the numbers that they get."""
        request = ProcessRequest(what, arguments, str(directory), dict(os.environ), sys.path, list(descriptors))
        with self._lock:
            socket.send_fds(self._connection, [json.dumps(request).encode()], list(descriptors.values()))
            answer, (descriptor,), *_ = socket.recv_fds(self._connection, _MOST, 1)
        return ForkedProcess(int(answer), descriptor)

    def interpreter(self, inherit: Collection[int] = ()) -> tuple[ForkedProcess, Connection]:
        """Return a forked stand-in for the result of `blocks.workers._start_interpreter`."""
        ours, theirs = socket.socketpair()
        with theirs, Path(os.devnull).open() as nothing:
            said = sys.__stderr__.fileno() if sys.__stderr__ else 2
            descriptors = {0: nothing.fileno(), 1: said, 2: 2, theirs.fileno(): theirs.fileno()}
            descriptors |= {descriptor: descriptor for descriptor in inherit}
            return self.fork("interpreter", [str(theirs.fileno())], Path.cwd(), descriptors), Connection(ours.detach())

    def start(
        self, arguments: list[str], directory: Path, streams: Sequence[int]
    ) -> tuple[ForkedProcess, socket.socket]:
        """Start the command line; returns a process that leads a process group, and a socket that receives the exit
        status.

        streams: descriptors of standard input, output and error. The command ends when the socket is closed.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = dict(enumerate(streams)) | {_STATUS: theirs.fileno()}
            return self.fork("guard", arguments, directory, descriptors), ours

    def run(
        self, arguments: list[str], directory: Path, timeout: float, input: str | bytes = "", text: bool = True
    ) -> subprocess.CompletedProcess[Any]:
        """Run the command line to its end, like `subprocess.run`."""
        mode = {"mode": "w+", "encoding": "utf-8"} if text else {"mode": "w+b"}
        with contextlib.ExitStack() as stack:
            streams = [stack.enter_context(tempfile.TemporaryFile(**mode)) for _ in range(3)]  # type: ignore[call-overload]
            if input:
                streams[0].write(input)
                streams[0].seek(0)
            guard, ours = self.start(arguments, directory, [stream.fileno() for stream in streams])
            ours.settimeout(timeout)
            try:
                status = ours.recv(16)
            except TimeoutError:
                raise subprocess.TimeoutExpired(["ooc", *arguments], timeout) from None
            finally:
                ours.close()  # which ends the command
                guard.wait()
            for stream in streams:
                stream.seek(0)
            out, err = (stream.read() for stream in streams[1:])
        return subprocess.CompletedProcess(["ooc", *arguments], int(status), out, err)


def nursery() -> ForkServer:
    """Return the fork server of this process."""
    with _STARTING:  # the first to need it may be several threads, for each of which `cache` would start one
        return started()


@cache
def started() -> ForkServer:
    """Return the fork server, starting it if needed; call from one thread only."""
    return begin()


def begin(**environment: str) -> ForkServer:
    """Start a new server, with variables that count when a process starts, such as LD_PRELOAD."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        environment = {**_ENVIRONMENT, **interpreters.ONE_THREAD, "PYTHONPATH": path, **environment}
        nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, **nothing)  # type: ignore[call-overload]
    return ForkServer(ours, process)


def will_do() -> bool:
    """Return whether the server stands in for a fresh interpreter in the current environment; on Linux only."""
    changed = {key for key, _ in os.environ.items() ^ _ENVIRONMENT.items()}
    return hasattr(os, "pidfd_open") and not any(key.startswith(_COUNTS_EARLY) for key in changed)


def _serve(requests: socket.socket, until: Collection[int] = ()) -> Callable[[], int] | None:
    """Fork the requested processes until no client is left, or a descriptor in `until` becomes readable.

    Returns, in each child, the task of the child.
    """
    watched = select.poll()
    for descriptor in (requests.fileno(), *until):
        watched.register(descriptor, select.POLLIN)
    while {descriptor for descriptor, _ in watched.poll()} == {requests.fileno()}:
        message, descriptors, *_ = socket.recv_fds(requests, _MOST, 64)
        if not message:
            break
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # until there is a handle, whatever becomes of it
        if not (child := os.fork()):
            requests.close()
            return partial(_become, ProcessRequest(*json.loads(message)), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        handle = os.pidfd_open(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        socket.send_fds(requests, [str(child).encode()], [handle])
        os.close(handle)
    return None


def _become(request: ProcessRequest, descriptors: list[int]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(request.places) + 1) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, place in zip(above, request.places, strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    if request.what == "guard":
        os.setsid()
        sys.path[:] = [request.directory, *request.path]
        return _guard(request.arguments)
    sys.path[:] = request.path
    os.environ.update(interpreters.ONE_THREAD)
    signal.pthread_sigmask(signal.SIG_BLOCK, interpreters.ENDING)
    workers._template(Connection(int(request.arguments[0])))
    return 0


def _guard(arguments: list[str]) -> int:
    """Start the command, fork its requests, and send its exit status to the socket; end the command if the socket
    closes.
    """
    theirs, ours = socket.socketpair(type=socket.SOCK_SEQPACKET)
    command = os.fork()
    if not command:
        ours.close()
        os.close(_STATUS)
        workers._start_interpreter = ForkServer(theirs).interpreter  # type: ignore[assignment]
        return _command(arguments)
    theirs.close()
    for stream in range(3):
        os.close(stream)
    if act := _serve(ours, (os.pidfd_open(command), _STATUS)):
        return act()
    if select.select([_STATUS], [], [], 0)[0]:
        os.kill(command, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with contextlib.suppress(OSError):
        os.write(_STATUS, str(status).encode())
    return 0


def _command(arguments: list[str]) -> int:
    """Run `python -m ooc`, up to the end of the process."""
    sys.argv = ["ooc", *arguments]
    try:
        runpy.run_module("ooc", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _import_all() -> None:
    """Import and prepare everything that commands and workers need before the first command or kernel."""
    importlib.import_module("h5py")
    for package in map(importlib.import_module, ("blocks", "ooc", "samplers")):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] not in ("__main__", "mpi"):
                with contextlib.suppress(ImportError):  # of what is installed for some commands only
                    importlib.import_module(module.name)
    from blocks.alias_table import alias_table
    from ooc.cli.app import commands

    alias_table(np.ones(2))
    with contextlib.suppress(Exception):  # there is no such file; what parses arguments is there then
        commands()(["info", os.devnull + "/none"], standalone_mode=False)


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end(code: int) -> NoReturn:
    """Do what Python does at the end of a process, except for finalizing modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    interpreters.ours = True
    _import_all()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    signal.signal(signal.SIGCHLD, _reap)
    to_do = _serve(socket.socket(fileno=int(sys.argv[1])))
    _end(to_do() if to_do else 0)
