"""The ring on which a command runs, if any: a ring of `ooc launch`, of a rendezvous or of MPI."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args

import typer

from blocks import stderr
from blocks.errors import OocError, RequestError
from ooc.cli.options import parameter, read
from ooc.cli.registry import commands
from ooc.cli.settings import settings, spelled_out
from ooc.cli.variables import variable
from ooc.runs.start_command import run_identity
from samplers.options import SEVERAL, Options, TrainingResources, check_machines, described, of_several

if TYPE_CHECKING:
    from ooc.ring.ring import Ring

RANK = "{rank}"  # placeholder for the rank in a path


def _option(name: str, kind: Any, metavar: str, help: str) -> Parameter:
    declared = typer.Option(metavar=metavar, help=help, rich_help_panel=SEVERAL)
    return parameter(name, Annotated[kind | None, declared], None)


TRANSPORT = "transport"
RING = (  # options of the processes that a scheduler starts, one on each machine
    _option(
        "rendezvous", str, "HOST:PORT", "Run on several machines; rank 0 listens here, and the others connect to it."
    ),
    _option("key_file", Path, "PATH", "File with the key that all ranks share (openssl rand -hex 32)."),
    _option("ring_rank", int, "N", "Number of this rank, from 0 [default: from RANK, SLURM_PROCID, PMI_RANK, ...]."),
    _option("ring_size", int, "N", "Number of ranks [default: from WORLD_SIZE, SLURM_NTASKS, PMI_SIZE, ...]."),
    _option("join_timeout", float, "SECONDS", "How long to wait for all ranks to join, in seconds [default: 600]."),
    _option("patience", float, "SECONDS", "Stop when a rank has not responded for this many seconds [default: 8]."),
    _option(
        "ports", str, "FIRST-LAST", "Ports on which this rank listens [default: the port of --rendezvous, or any port]."
    ),
    _option(
        TRANSPORT,
        str,
        "mpi",
        "Run on several machines with MPI; give this option to every rank that mpirun or srun starts.",
    ),
)


class CommandSession(NamedTuple):
    """Ring and resources of a command on this machine.

    ring: None on a single machine.
    workers, memory: values for this rank, if they differ from the command's options.
    quiet: whether to print only errors and results.
    time: seconds until the command must end.
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
        """Return a path with {rank} replaced by this rank."""
        return path if self.ring is None else rank_path(path, self.ring.rank)

    def limit(self, max_time: float | None) -> float | None:
        """Return the maximum number of seconds that training may take, at most max_time; None for no limit."""
        return min((limit for limit in (max_time, self.time) if limit is not None), default=None)

    def resources(self, given: Mapping[str, Any]) -> TrainingResources:
        """Return the resources that training may use.

        given: parameters of the command.
        """
        asked = read(TrainingResources, given, self.place)
        on_node = self.ring is not None and asked.scratch == Path("node")
        if on_node and not of_several(self.ring):
            raise RequestError(
                "--scratch node can only be used on several machines",
                described(TrainingResources)["on_node"].option.together,
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


_launched: list[CommandSession] = []


def rank_path(path: Path, rank: int) -> Path:
    """Return a path with {rank} replaced by a rank."""
    return Path(str(path).replace(RANK, str(rank)))


def quoted_run(run: Path) -> str:
    """Return the path of a run, quoted for a shell; {rank} is not quoted."""
    plain = str(run).replace(RANK, "")
    return str(run) if shlex.quote(plain) == plain else shlex.quote(str(run))


@contextmanager
def in_launch(session: CommandSession) -> Iterator[None]:
    """Mark commands that are called within this context as part of a launch."""
    _launched.append(session)
    try:
        yield
    finally:
        _launched.pop()


def options_equal_on_ranks(values: Mapping[str, Any]) -> dict[str, str]:
    """Return options that must be equal on all ranks in the form that `session` compares.

    values: by name.
    """
    return {f"--{name}": "not given" if value is None else str(value) for name, value in values.items()}


def all_but_paths(kind: type[Options], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options, except paths, by name.

    kind: options class.
    given: parameters of the command.
    """
    options = [each for each in described(kind).values() if Path not in (each.type, *get_args(each.type))]
    return {each.name: given.get(each.field, each.default) for each in options}


@contextmanager
def session(given: Mapping[str, Any] = MappingProxyType({}), asked: Any = None) -> Iterator[CommandSession]:
    """Yield the session of a command; leave its ring, if any, at the end of the context.

    given: parameters of the command, including the options of RING if a scheduler may start the command, and `run` if
        it trains.
    asked: values that must be equal on all ranks, by name.
    """
    transport, rendezvous = given.get(TRANSPORT), given.get("rendezvous")
    if _launched:
        yield _launched[-1]
    elif rendezvous is not None:
        if transport is not None:
            raise RequestError("--rendezvous and --transport are mutually exclusive", "Use only one of them.")
        ring = _meet(given)
        how = _how(ring.ranks, "", _options_to_meet(given))
        with _on_ring(ring, given.get("run"), how if given["ring_rank"] is None else ("", how[1]), asked) as here:
            yield here
    elif given_alone := next((name for name in _alone() if given.get(name) is not None), None):
        raise RequestError(
            f"--{given_alone.replace('_', '-')} can only be used with --rendezvous",
            f"Add --rendezvous HOST:PORT, or omit --{given_alone.replace('_', '-')}.",
        )
    elif transport is None:
        yield CommandSession()
    elif transport == "mpi":
        from ooc import slurm
        from ooc.ring import mpi

        ring = mpi.join()
        slurm.check_ranks(ring.ranks)
        with _on_ring(ring, given.get("run"), _how(ring.ranks, "mpirun", "--transport mpi"), asked) as here:
            yield here
    else:
        raise RequestError(
            f"--transport: unknown transport {transport}", "Use --transport mpi; over ssh and TCP, use: ooc launch"
        )


_OF_RENDEZVOUS = ("key_file", "ring_rank", "ring_size", "join_timeout", "patience", "ports")
_OF_LAUNCH = (
    "patience",
    "ports",
)  # `ooc launch` has these options, too, and their environment variables may be meant for it


def _alone() -> list[str]:
    """Return the options that need --rendezvous, except those that variables may have set for `ooc launch`."""
    return [name for name in _OF_RENDEZVOUS if name not in _OF_LAUNCH or variable(name) not in os.environ]


def _meet(given: Mapping[str, Any]) -> Ring:
    """Return the ring of the ranks that join at --rendezvous."""
    from ooc.launch.rendezvous import join, rendezvous

    if given["key_file"] is None:
        raise RequestError(
            "--rendezvous needs the key that all ranks share",
            "Create one: (umask 077; openssl rand -hex 32 > ring.key), and give it to all ranks: --key-file ring.key",
        )
    more = {name: given[name] for name in ("join_timeout", "patience", "ports") if given[name] is not None}
    return join(rendezvous(given["rendezvous"], given["key_file"], given["ring_rank"], given["ring_size"], **more))


def _options_to_meet(given: Mapping[str, Any]) -> str:
    """Return this rank's rendezvous options, for a further command on the same ranks."""
    names = [name for name in ("rendezvous", *_OF_RENDEZVOUS) if given[name] is not None]
    return " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(given[name]))}" for name in names)


def _how(ranks: int, starter: str, options: str) -> tuple[str, str]:
    """Return the text before and after a command that runs on all ranks.

    starter: program that started the ranks, unless srun did.
    """
    from ooc import slurm

    return slurm.starter(ranks, starter), options


@contextmanager
def _on_ring(ring: Ring, run: Path | None, how: tuple[str, str], asked: dict[str, str]) -> Iterator[CommandSession]:
    """Yield the session of a rank that a scheduler has started.

    run: run that the command trains, if any.
    how: result of `_how`, for the command that resumes.
    """
    from ooc import slurm
    from ooc.launch.preflight import check_start
    from ooc.ring.ring import RingFailed, leave_ring_together

    with closing(ring):
        check_start(ring, asked)  # all ranks raise the same error
        with leave_ring_together(ring):
            here = CommandSession(ring, quiet=ring.rank > 0, time=slurm.time_to_train() if run else None)
            if here.time and here.is_first:
                stderr.print_note(f"training stops after {here.time:,.0f} s, before the time limit of this job")
            try:
                yield here
            except OocError as error:
                if run is None:
                    if type(error) is RingFailed:
                        error.remedy = "All ranks stop. When the cause is fixed, run the command again."
                    raise
                rank_run, again = rank_path(run, ring.rank), f"{how[0]}ooc resume {quoted_run(run)} {how[1]}"
                if of_several(ring):
                    error.remedy = error.remedy.replace(f"ooc resume {rank_run}", again)
                if type(error) is RingFailed and run_identity(rank_run):
                    error.remedy = f"All ranks stop. When the cause is fixed, continue with: {again}"
                raise


class RingCommand(NamedTuple):
    """A command that can run on a ring.

    name: name of the command, such as "train lda", "resume" or "ingest text".
    rest: arguments of the command, including those from environment variables and the config file.
    parameters: parsed arguments.
    """

    name: str
    rest: Sequence[str]
    parameters: dict[str, Any]

    @property
    def ingests(self) -> bool:
        return self.name.startswith("ingest")

    @property
    def makes(self) -> Path:
        """Return the path of the run or dataset that the command creates or continues."""
        return Path(self.parameters["out" if self.ingests else "run"])

    @property
    def arguments(self) -> list[str]:
        """Return the words of the command with all options, also those from variables and the config file."""
        return [*self.name.split(), *self.rest]

    def to_go_on(self, elapsed: float) -> list[str]:
        """Return the arguments of `ooc resume` that continue a run `elapsed` seconds after its start."""
        given = self.parameters
        words = [*self.rest] if self.name == "resume" else [str(self.makes)]
        if self.name != "resume":
            told = {"workers": given["workers"], "memory": given["memory_bytes"], "metrics-file": given["metrics_file"]}
            words += [f"--{name}={value}" for name, value in told.items() if value is not None]
            words += [f"--{name}" for name in ("quiet", "json") if given[name]]
        left = None if given["max_time"] is None else max(given["max_time"] - elapsed, 1.0)
        return [*words, *([] if left is None else [f"--max-time={left:.0f}"])]

    def call(self) -> Any:
        """Run the command; returns its exit code if it is not 0."""
        return commands(*self.name.split()).main(args=self.arguments, standalone_mode=False)


def choose(arguments: Sequence[str], ranks: int) -> RingCommand:
    """Parse the arguments of `ooc`.

    Raises RequestError if the command cannot run on a ring of this size.
    """
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
                check_machines(kind, parameters, several=ranks > 1)
            for option in ("transport", "rendezvous"):
                if parameters.get(option):
                    raise RequestError(
                        f"--{option} cannot be used with `ooc launch`, which connects the ranks itself",
                        f"Omit --{option}.",
                    )
            if parameters.get("skip_existing"):
                raise RequestError("--skip-existing can only be used on one machine", "Omit --skip-existing.")
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
