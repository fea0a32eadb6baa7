"""The ring on which a command runs, if any: that of `ooc launch` or of MPI."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer

from blocks import stderr
from blocks.errors import Interrupted, OocError, RequestError
from ooc.cli.options import parameter, read
from ooc.cli.registry import commands
from ooc.cli.settings import settings, spelled_out
from samplers.options import RESOURCES, Options, Resources, check_machines, described, of_several

if TYPE_CHECKING:
    from ooc.ring.ring import Ring

RANK = "{rank}"  # in a path: the number of the rank
TRANSPORT = parameter(
    "transport",
    Annotated[
        str | None,
        typer.Option(
            metavar="mpi",
            help="Train on several machines: set on each rank that mpirun or srun starts.",
            rich_help_panel=RESOURCES,
        ),
    ],
    None,
)


class Session(NamedTuple):
    """The resources of a command on this machine.

    ring: None on a single machine. workers, memory: of this rank, if they differ from the command's options. quiet:
    print only errors and results. time: seconds until the command must end.
    """

    ring: Ring | None = None
    workers: int | None = None
    memory: int | None = None
    quiet: bool = False
    time: float | None = None

    @property
    def is_first(self) -> bool:
        """Return whether this rank prints results."""
        return self.ring is None or self.ring.rank == 0

    def place(self, path: Path) -> Path:
        """Return a path with {rank} replaced for this rank."""
        return path if self.ring is None else placed(path, self.ring.rank)

    def limit(self, max_time: float | None) -> float | None:
        """Return the seconds that a training may take, at most max_time."""
        return min((limit for limit in (max_time, self.time) if limit is not None), default=None)

    def resources(self, given: Mapping[str, Any]) -> Resources:
        """Return the resources that a training may use. given: parameters of the command."""
        asked = read(Resources, given, self.place)
        on_node = self.ring is not None and asked.scratch == Path("node")
        if on_node and not of_several(self.ring):
            raise RequestError(
                "--scratch node can only be used on several machines", described(Resources)["on_node"].option.together
            )
        return replace(
            asked,
            workers=self.workers or asked.workers,
            memory_bytes=self.memory or asked.memory_bytes,
            max_time=self.limit(asked.max_time),
            scratch=None if on_node else asked.scratch,
            on_node=on_node,
            quiet=asked.quiet or self.quiet,
        )


_launched: list[Session] = []


def placed(path: Path, rank: int) -> Path:
    """Return a path with {rank} replaced by a rank."""
    return Path(str(path).replace(RANK, str(rank)))


def quoted_run(run: Path) -> str:
    """Return the path of a run quoted for a shell; {rank} needs no quotes."""
    plain = str(run).replace(RANK, "")
    return str(run) if shlex.quote(plain) == plain else shlex.quote(str(run))


@contextmanager
def launched(session: Session) -> Iterator[None]:
    """Mark commands that are called in this context as part of a launch."""
    _launched.append(session)
    try:
        yield
    finally:
        _launched.pop()


def same_everywhere(kind: type[Options], given: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that must be equal on all ranks, by name: all except paths.

    kind: options class. given: parameters of the command.
    """
    options = [each for each in described(kind).values() if Path not in (each.type, *get_args(each.type))]
    values = {f"--{each.name}": given.get(each.field, each.default) for each in options}
    return {name: "not given" if value is None else str(value) for name, value in values.items()}


@contextmanager
def session(given: Mapping[str, Any] = MappingProxyType({}), asked: Any = None) -> Iterator[Session]:
    """Yield the session of a command until the command is done.

    given: parameters of the command, including `transport` and `run` if MPI may start it. asked: values that must be
    equal on all ranks, by name.
    """
    transport = given.get("transport")
    if _launched:
        yield _launched[-1]
    elif transport is None:
        yield Session()
    elif transport == "mpi":
        with _started_by_mpi(given["run"], asked) as here:
            yield here
    else:
        raise RequestError(f"--transport {transport}: there is mpi", "Over ssh and TCP, use: ooc launch")


@contextmanager
def _started_by_mpi(run: Path, asked: dict[str, str]) -> Iterator[Session]:
    from ooc import slurm
    from ooc.launch.preflight import check_start
    from ooc.ring import mpi

    ring = mpi.join()
    try:
        slurm.check_ranks(ring.ranks)
        check_start(ring, asked)
        here = Session(ring, quiet=ring.rank > 0, time=slurm.time_to_train())
        if here.time and here.is_first:
            stderr.note(f"the time of this job is limited: training stops after {here.time:,.0f} s")
        yield here
        ring.barrier()
    except BaseException as error:
        if isinstance(error, OocError) and of_several(ring):
            again = f"{slurm.starter(ring.ranks)} ooc resume {quoted_run(run)} --transport mpi"
            error.remedy = error.remedy.replace(f"ooc resume {placed(run, ring.rank)}", again)
        if not isinstance(error, Interrupted):  # which all ranks have agreed on
            ring.fail(error.what if isinstance(error, OocError) else type(error).__name__)
        raise
    finally:
        ring.close()


class RingCommand(NamedTuple):
    """A command that can run on a ring.

    name: such as "train lda", "resume" or "ingest text". rest: the arguments of the command, including those from
    variables and the config file. parameters: parsed arguments.
    """

    name: str
    rest: Sequence[str]
    parameters: dict[str, Any]

    @property
    def ingests(self) -> bool:
        return self.name.startswith("ingest")

    @property
    def makes(self) -> Path:
        """Return the run or dataset that the command makes or continues."""
        return Path(self.parameters["out" if self.ingests else "run"])

    @property
    def arguments(self) -> list[str]:
        """Return the arguments that request the same on a machine without this machine's files."""
        return [*self.name.split(), *self.rest]

    def to_go_on(self, elapsed: float) -> list[str]:
        """Return the arguments of `ooc resume` that continue a training `elapsed` seconds after its start."""
        given = self.parameters
        words = [*self.rest] if self.name == "resume" else [str(self.makes)]
        if self.name != "resume":
            told = {"workers": given["workers"], "memory": given["memory_bytes"], "metrics-file": given["metrics_file"]}
            words += [f"--{name}={value}" for name, value in told.items() if value is not None]
            words += [f"--{name}" for name in ("quiet", "json") if given[name]]
        left = None if given["max_time"] is None else max(given["max_time"] - elapsed, 1.0)
        return [*words, *([] if left is None else [f"--max-time={left:.0f}"])]

    def call(self) -> Any:
        """Run the command; return its exit code if it is not 0."""
        return commands(*self.name.split()).main(args=self.arguments, standalone_mode=False)


def choose(arguments: Sequence[str]) -> RingCommand:
    """Parse the arguments of `ooc`; raises RequestError if the command cannot run on a ring."""
    words, able = list(arguments), []
    root = commands(*words[:2])
    for name, command, context in _single(root, root.context_class(root, info_name="ooc launch --")):
        if not getattr(command.callback, "on_ring", False):
            continue
        able.append(name)
        if words[: len(name.split())] == name.split():
            last = name.split()[-1]
            rest = spelled_out(settings(command, last, words[len(name.split()) :], context))
            parameters = command.make_context(last, list(rest), parent=context).params
            if kind := getattr(command.callback, "kind", None):
                check_machines(kind, parameters, several=True)
            if parameters.get("transport"):
                raise RequestError(
                    "--transport cannot be used with `ooc launch`, whose ranks are connected over TCP",
                    "Leave --transport out.",
                )
            if parameters.get("watch"):
                raise RequestError(
                    "--watch can only be used on one machine",
                    "Watch the run of a rank on its machine with: ooc watch RUN",
                )
            return RingCommand(name, rest, parameters)
    raise RequestError(
        f"`ooc {' '.join(words[:2])}` cannot run on several machines", f"Choose one of: {', '.join(able)}."
    )


def _single(group: Any, context: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the full name and the parent context of each command of a group and its subgroups."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _single(command, command.context_class(command, info_name=name, parent=context), f"{name} ")
        else:
            yield f"{above}{name}", command, context
