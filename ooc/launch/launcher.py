"""Run a command on several machines as the ranks of a ring: start, check, monitor and end the ranks over ssh.

The launcher sends each rank its task and credentials over the standard input of ssh, and each rank replies with a
description of itself. If the ranks are compatible, the launcher sends them the addresses of all ranks, and they start.
From then on, the launcher handles their messages and sends heartbeats. A failure of one rank ends all ranks, and no
rank outlives the launcher (see `ooc.launch.supervisor`).
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from blocks import stderr
from blocks.errors import STOPPED, Interrupted, OocError, WorkFailed, error_class
from blocks.interpreters import ENDING
from ooc.launch.hosts import HostsFileLine
from ooc.launch.ports import format_ports
from ooc.launch.preflight import RankDescription, check, check_addresses, check_reached, list_names
from ooc.launch.rank_reports import RankReport, first_cause
from ooc.launch.remote_rank import RemoteRank, end_all, pack_json_line
from ooc.launch.ssh_connections import SharedConnections, SshOptions
from ooc.launch.ssh_tunnels import LOOPBACK, TunnelSockets, forwarding_remedy
from ooc.launch.supervisor import ALIVE, END, STOP
from ooc.ring.credentials import issue_credentials

START = 120.0  # seconds for all ranks to send their descriptions
REACHED = 45.0  # seconds for ranks to connect to each other
GRACE = 10.0  # seconds for the other ranks to end after one has failed
_END = 3.0  # seconds for ranks to end after an end message or a kill
_LEAVE = 60.0  # seconds for the last rank to end after the first one, which ends only when all ranks are done
_BEAT = 2.0  # seconds between heartbeats
_MAX_CONNECTING = 8  # connections not yet authenticated; by default, sshd drops some once there are ten (MaxStartups)
_MAX_TRIES = 6  # attempts to connect to an sshd that drops connections nevertheless
_LONGEST_PAUSE = 60.0  # seconds before a restart
_CLEAR = "\r\x1b[K"  # clears the terminal line that shows the progress bar


class LaunchRequest(NamedTuple):
    """A command to launch.

    arguments: arguments of `ooc`.
    resume: command that continues the run, for messages.
    again: function that takes the seconds since the start and returns the arguments that continue the run.
    restarts: maximum number of automatic restarts.
    ports: ports on which ranks may listen; None for any port.
    tunnel: whether ranks connect to each other through ssh (`ooc.launch.ssh_tunnels`).
    patience: seconds without a heartbeat after which a rank counts as lost.
    columns: width of the terminal, 0 if there is none.
    """

    hosts: Sequence[HostsFileLine]
    arguments: Sequence[str]
    resume: str
    again: Callable[[float], Sequence[str]]
    restarts: int
    insecure: bool
    ports: range | None
    tunnel: bool
    patience: float
    ssh_config: Path | None
    columns: int
    debug: bool


def launch(request: LaunchRequest) -> None:
    """Run a command on all hosts until it ends, and print the output of rank 0; raises the command's error.

    If a rank is lost, all ranks are restarted after a pause, at most request.restarts times.
    """
    began = time.monotonic()
    for restart in range(request.restarts + 1):
        launcher = Launcher(request)
        try:
            with launcher.signals():
                launcher.follow()
        finally:
            launcher.dismiss()
        if (failure := launcher.failure()) is None:
            return
        if restart == request.restarts or not launcher.is_transient(is_restart=restart > 0):
            raise failure
        pause = min(2.0 ** (restart + 1), _LONGEST_PAUSE)
        stderr.print_warning(
            f"{failure.what.rstrip('.')}; restart {restart + 1} of {request.restarts} in {pause:.0f} s"
        )
        time.sleep(pause)
        request = request._replace(arguments=request.again(time.monotonic() - began))


class Launcher:
    """One launch of a command."""

    def __init__(self, request: LaunchRequest) -> None:
        self._request = request
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._hellos: dict[
            int, tuple[RankDescription, float]
        ] = {}  # by rank: its description, and the seconds by which its clock is ahead
        self._reports: dict[int, RankReport] = {}
        self._failed: list[tuple[RemoteRank, RankReport | None]] = []  # in order of time; None: without a report
        self._problems: dict[int, str] = {}  # by rank: why it cannot reach the next rank; "" if it can
        self._asked = self._joined = self._signalled = self._stopping = self._ended = self._killed = False
        self._until = time.monotonic() + START
        self._beat = 0.0
        self._tunnels = TunnelSockets() if request.tunnel else None
        ssh = SshOptions(request.patience, request.ssh_config)
        # With tunnels, each rank has its own connection, because connections carry slices.
        self._shared = SharedConnections([] if self._tunnels else request.hosts, ssh)
        self._remotes = [
            RemoteRank(
                *(rank, host, ssh, self._events),
                control=self._tunnels.control(rank) if self._tunnels else None,
                shared=None if self._tunnels else self._shared.by_rank[rank],
            )
            for rank, host in enumerate(request.hosts)
        ]
        self._tasks = [pack_json_line(task) for task in self._told_at_start()]
        self._pending = deque(self._remotes)  # not started yet
        self._connecting: set[RemoteRank] = set()  # started, but not authenticated yet
        self._present: set[RemoteRank] = set()
        self._next_start = 0.0

    def _told_at_start(self) -> Iterator[dict[str, Any]]:
        """Yield the task of each rank: the message that is sent to it at its start."""
        request = self._request
        credentials = issue_credentials(len(request.hosts), insecure=request.insecure)
        at_home = Counter(host.name for host in request.hosts)
        for rank, host in enumerate(request.hosts):
            ports = host.ports or request.ports or range(1)  # 0: the kernel chooses
            yield {
                "rank": rank,
                "ranks": len(request.hosts),
                "credentials": credentials[rank]._asdict(),
                "workers": host.cores,
                "memory": host.memory,
                "share": at_home[host.name],
                "address": LOOPBACK if request.tunnel else host.address,
                "ports": [ports[0], ports[-1]],
                **{name: getattr(request, name) for name in _TOLD},
            }

    def _start_some(self) -> None:
        """Start pending ranks while fewer than _MAX_CONNECTING connections are being established, shared ones first."""
        if self._stopping or self._ended:
            self._pending.clear()
        if not (self._pending and self._shared.open(_MAX_CONNECTING)):
            return
        while self._pending and len(self._connecting) < _MAX_CONNECTING and time.monotonic() >= self._next_start:
            remote = self._pending.popleft()
            self._connecting.add(remote)
            self._present.add(remote)
            remote.start(self._tasks[remote.rank])

    def _retries(self, remote: RemoteRank) -> bool:
        """Return whether to start a rank again, after a pause, because its sshd dropped the connection."""
        if remote not in self._connecting or not remote.was_dropped or remote.tries == _MAX_TRIES or self._stopping:
            return False
        self._next_start = time.monotonic() + 0.5 * 2**remote.tries
        self._pending.append(remote)
        return True

    def follow(self) -> None:
        """Handle events until the last rank has ended."""
        while self._present or self._pending:
            self._start_some()
            self._listen()
            if not (self._joined or self._stopping or self._ended):
                if len(self._hellos) == len(self._remotes) and not self._asked:
                    self._connect()
                if len(self._problems) == len(self._remotes):
                    self._join()
            if time.monotonic() > self._until:
                self._press()

    def _listen(self) -> None:
        """Wait for one event and handle it; send heartbeats."""
        if (now := time.monotonic()) > self._beat:
            self._beat = now + _BEAT
            self._tell_all(ALIVE)
        try:
            remote, kind, content = self._events.get(timeout=0.2)
        except Empty:
            return
        if kind == "signal":
            self._interrupt()
        elif kind == "log":
            self._log(remote, content)
        elif kind == "here":
            self._connecting.discard(remote)
        elif kind == "gone":
            self._present.discard(remote)
            if remote.rank not in self._reports and not self._retries(remote):
                self._fail(remote, None)
            self._connecting.discard(remote)
        else:
            self._deal_with(remote, content)

    def _deal_with(self, remote: RemoteRank, told: dict[str, Any]) -> None:
        try:
            if "hello" in told:
                hello = RankDescription(**told["hello"])
                self._hellos[remote.rank] = hello, float(hello.clock) - time.time()
            elif "reached" in told:
                self._problems[remote.rank] = str(told["reached"])
            elif "ended" in told:
                self._reports[remote.rank] = report = RankReport(**told["ended"])
                if report.code:
                    self._fail(remote, report)
                else:
                    self._until = min(self._until, time.monotonic() + _LEAVE)
            elif remote.rank == 0:
                stream = sys.stderr if "bar" in told else sys.stdout
                stream.write(told["bar" if "bar" in told else "out"])
                stream.flush()
        except (TypeError, ValueError, KeyError):
            self._fail(remote, RankReport(1, "sent an invalid message to the launcher"))

    def _connect(self) -> None:
        """Check the descriptions of all ranks, and have each rank connect to the next one."""
        told = [self._hellos[remote.rank] for remote in self._remotes]
        hellos, names = [hello for hello, _ in told], [remote.name for remote in self._remotes]
        for warning in check(hellos, names, [ahead for _, ahead in told]):
            stderr.print_warning(warning)
        addresses = [[(hello.address, hello.port) for hello in hellos]] * len(hellos)
        if self._tunnels and len(hellos) > 1:
            after = self._tunnels.open(self._remotes, [hello.port for hello in hellos])
            addresses = [[each] * len(hellos) for each in after]
        else:
            remedy = "Add an address that other ranks can reach to the host's line of --hosts: address=IP"
            check_addresses([hello.address for hello in hellos], [hello.hostname for hello in hellos], names, remedy)
        hosts = [remote.host.name for remote in self._remotes]
        for remote, reachable in zip(self._remotes, addresses, strict=True):
            remote.send(pack_json_line({"addresses": reachable, "names": hosts}))
        self._asked, self._until = True, time.monotonic() + REACHED

    def _join(self) -> None:
        """Let the ranks start, unless some cannot reach the next one."""
        problems = [self._problems[remote.rank] for remote in self._remotes]
        try:
            check_reached([remote.name for remote in self._remotes], problems, self._to_open)
        except WorkFailed as error:
            first = next(remote for remote in self._remotes if problems[remote.rank])
            self._fail(first, RankReport(1, error.what, error.remedy, ring=True, transient=True))
            return
        if self._tunnels:
            self._tunnels.close()
        self._tell_all(pack_json_line({"go": True}))
        self._joined, self._until = True, float("inf")

    def _to_open(self, ranks: Sequence[int]) -> str:
        """Return a remedy for ranks that cannot be reached."""
        where = list_names([self._remotes[rank].name for rank in ranks])
        if self._tunnels:
            return forwarding_remedy(where)
        given = [self._request.hosts[rank].ports or self._request.ports for rank in ranks]
        if all(given):
            ports = sorted({format_ports(each) for each in given if each})
            opened = (
                f"Open TCP {'ports' if len(ports) > 1 or '-' in ports[0] else 'port'} {', '.join(ports)} on {where}"
            )
        else:
            opened = f"Choose ports with --ports FIRST-LAST and open them on {where}"
        return f"{opened}, or use --tunnel. If an address is wrong, add address=IP to the host's line of --hosts."

    def _press(self) -> None:
        """Handle a missed deadline: first fail late ranks, then end all ranks, then kill them."""
        if not self._stopping and not self._ended and (late := self._late()):
            self._fail(*late)
        elif not self._ended:
            self._end()
        elif not self._killed:
            groups = {rank: (int(hello.group), int(hello.supervisor)) for rank, (hello, _) in self._hellos.items()}
            end_all([*self._present], groups)
            self._killed, self._until = True, time.monotonic() + _END
        else:
            for remote in self._present:
                stderr.print_warning(
                    f"{remote.name}: its ssh process cannot be killed, so the rank may still be running on its host"
                )
            self._present.clear()

    def _late(self) -> tuple[RemoteRank, RankReport] | None:
        """Return the first rank that did not start in time, or that did not exit in time after the others."""
        if self._joined:
            told, what = {*self._reports}, f"did not exit within {_LEAVE:.0f} s of the other ranks"
        elif self._asked:
            told, what = {*self._problems}, f"did not try to reach the next rank within {REACHED:.0f} s"
        else:
            told, what = {*self._hellos}, f"did not start within {START:.0f} s"
        return next(((each, RankReport(1, what)) for each in self._remotes if each.rank not in told), None)

    def _fail(self, remote: RemoteRank, report: RankReport | None) -> None:
        """Record the failure of a rank, and stop all ranks unless the rank only stopped as requested."""
        if self._ended:
            return
        self._failed.append((remote, report))
        if self._joined and report and report.code in STOPPED:
            return
        self._stop()
        self._until = min(self._until, time.monotonic() + GRACE)

    def _interrupt(self) -> None:
        if self._signalled:
            self._end()
            return
        self._signalled = True
        self._stop()
        if not self._joined:
            self._until = time.monotonic() + GRACE

    def _stop(self) -> None:
        """Interrupt all ranks, but only once: a second interrupt would keep them from saving their state."""
        if not self._stopping:
            self._stopping = True
            self._tell_all(STOP)

    def _end(self) -> None:
        self._ended, self._until = True, time.monotonic() + _END
        self._tell_all(END)

    def _tell_all(self, line: bytes) -> None:
        for remote in self._remotes:
            remote.send(line)

    def dismiss(self) -> None:
        """End all ranks that are still running."""
        if self._present:
            self._end()
            self.follow()
        if self._tunnels:
            self._tunnels.close()
        self._shared.close()
        self._clear()

    def _log(self, remote: RemoteRank, text: str) -> None:
        self._clear()
        stderr.relay_line(text, remote.rank)

    def _clear(self) -> None:
        if self._request.columns and sys.__stderr__:  # `sys.stderr` may show control characters as text
            print(_CLEAR, end="", file=sys.__stderr__, flush=True)

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Stop all ranks on SIGINT, SIGTERM or SIGHUP; a second signal ends them at once."""
        heard = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
        before = {each: signal.signal(each, lambda *_: self._events.put((None, "signal", None))) for each in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def failure(self) -> OocError | None:
        """Return the error of the command, in the user's terms; None if the command succeeded."""
        found = first_cause(self._failed, signalled=self._signalled)
        if found is None:
            unfinished = self._signalled and len(self._reports) < len(self._remotes)
            return Interrupted("stopped immediately, without saving", self._go_on()) if unfinished else None
        remote, report = found
        if report is None:
            begun = remote.rank in self._hellos
            return WorkFailed(f"{remote.name} {remote.ending(begun)}", self._go_on() if begun else remote.remedy)
        if report.ring:
            return WorkFailed(report.what, report.remedy if not self._joined else self._go_on())
        if report.code in STOPPED:
            return error_class(report.code)(report.what, report.remedy)
        remedy = report.remedy
        if report.code == 1 and self._request.resume not in remedy:
            remedy = "\n".join(filter(None, [remedy, self._go_on()]))
        return error_class(report.code)(f"{remote.name}: {report.what}", remedy)

    def is_transient(self, *, is_restart: bool) -> bool:
        """Return whether a restart may succeed: a rank was lost after all had joined, or has not rejoined yet."""
        found = first_cause(self._failed, signalled=self._signalled)
        if found is None or self._signalled or not (self._joined or is_restart):
            return False
        remote, report = found
        return remote.is_lost if report is None else report.transient

    def _go_on(self) -> str:
        """Return a remedy that says how to continue the run; "" if there is no run to continue."""
        begun = any(report.begun for report in self._reports.values())
        return (
            f"All ranks have stopped. When the cause is fixed, continue with: {self._request.resume}" if begun else ""
        )


# Fields of the request that are sent to all ranks.
_TOLD = ("arguments", "resume", "insecure", "patience", "columns", "debug")
