"""The ring that a command runs on, if any: that of the launch that it is part of, or of MPI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from blocks import stderr
from blocks.errors import Interrupted, OocError, RequestError

if TYPE_CHECKING:
    from ooc.ring.ring import Ring

RANK = "{rank}"  # in a path: the number of the rank
Transport = Annotated[
    str | None,
    typer.Option(metavar="mpi", help="Started by mpirun or srun: one rank of several that train together."),
]
_LEAVE = "Leave it out."
# Options of commands that no ring can take: their values that do no harm, and what to do.
_REFUSED: dict[str, dict[str, tuple[tuple[Any, ...], str]]] = {
    "train lda": {
        "update": ((None, "delayed"), "Rows take in what was sampled cell by cell, as with delayed; leave it out."),
        "start": ((None, "random"), "Topics are random at first; leave it out."),
        "chains": ((1,), "Train them one after the other, each with a --seed of its own."),
    },
    "train mf": {
        "schedule": ((None, "rotation"), _LEAVE),
        "replicas": ((None,), _LEAVE),
        "combine": ((None,), _LEAVE),
    },
}


class Session(NamedTuple):
    """ring: None on one machine. workers, memory: of this rank, if others than the command says.

    quiet: nothing but errors and results is told. time: seconds until it has to end.
    """

    ring: Ring | None = None
    workers: int | None = None
    memory: int | None = None
    quiet: bool = False
    time: float | None = None

    @property
    def is_first(self) -> bool:
        """Whether it tells results."""
        return self.ring is None or self.ring.rank == 0

    def place(self, path: Path) -> Path:
        """A path of this rank."""
        return path if self.ring is None else placed(path, self.ring.rank)

    def limit(self, max_time: float | None) -> float | None:
        """Seconds that a training may take; max_time: at most."""
        return min((limit for limit in (max_time, self.time) if limit is not None), default=None)


_launched: list[Session] = []


def placed(path: Path, rank: int) -> Path:
    """A path with the number of a rank in it."""
    return Path(str(path).replace(RANK, str(rank)))


@contextmanager
def launched(session: Session) -> Iterator[None]:
    """Commands that are called meanwhile are part of a launch."""
    _launched.append(session)
    try:
        yield
    finally:
        _launched.pop()


@contextmanager
def session(transport: str | None) -> Iterator[Session]:
    """What a command runs on, until it is done. transport: its option."""
    if _launched:
        yield _launched[-1]
        return
    if transport is None:
        yield Session()
        return
    if transport != "mpi":
        raise RequestError(f"--transport {transport}: there is mpi", "Over ssh and TCP, use: ooc launch")
    from ooc import batch
    from ooc.ring import mpi

    ring = mpi.join()
    try:
        batch.check_ranks(ring.ranks)
        here = Session(ring, quiet=ring.rank > 0, time=batch.time_to_train())
        if here.time and here.is_first:
            stderr.note(f"the job's time is limited: training stops after {here.time:,.0f} s")
        yield here
        ring.barrier()
    except Interrupted:  # as all ranks have agreed
        raise
    except BaseException as error:
        ring.fail(error.what if isinstance(error, OocError) else type(error).__name__)
        raise
    finally:
        ring.close()


def refuse_on_ring(command: str, parameters: Mapping[str, Any]) -> None:
    """Raise RequestError for an option of a training that no ring can take. command: a key of `_REFUSED`."""
    for name, (harmless, remedy) in _REFUSED[command].items():
        if parameters[name] not in harmless:
            raise RequestError(f"--{name} {parameters[name]} cannot be used on several machines", remedy)


class Chosen(NamedTuple):
    """A command that can run on a ring. name: "train lda", "resume" or "ingest text". rest: its own arguments, with
    those of variables and of a file of `--config`."""

    name: str
    command: Any
    rest: Sequence[str]
    parameters: dict[str, Any]

    @property
    def ingests(self) -> bool:
        return self.name.startswith("ingest")

    @property
    def makes(self) -> Path:
        """The run or dataset that it makes, or goes on with."""
        return Path(self.parameters["out" if self.ingests else "run"])

    @property
    def arguments(self) -> list[str]:
        """What it is asked for by, on a machine without this one's files."""
        return [*self.name.split(), *self.rest]


def choose(arguments: Sequence[str]) -> Chosen:
    """What the arguments of `ooc` ask for; RequestError unless it can run on a ring, the parser's for wrong options."""
    from typer.main import get_command

    from cli import ingest, regression, train
    from cli.command import Command, Training
    from cli.settings import settings, spelled_out

    words, app = list(arguments), typer.Typer()
    app.command("train lda", cls=Training)(train.train_lda)
    app.command("train mf", cls=Training)(train.train_mf)
    app.command("train lasso", cls=Training)(regression.train_lasso)
    app.command("train logistic", cls=Training)(regression.train_logistic)
    app.command("train softmax", cls=Training)(train.train_softmax)
    app.command("resume", cls=Training)(train.resume)
    for kind in (ingest.ingest_uci, ingest.ingest_text, ingest.ingest_jsonl, ingest.ingest_csv):
        app.command(kind.__name__.replace("_", " "), cls=Command)(kind)
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    for name, command in commands.items():
        if words[: len(name.split())] == name.split():
            rest = spelled_out(settings(command, f"ooc launch -- {name}", words[len(name.split()) :]))
            parameters = command.make_context(f"ooc launch -- {name}", list(rest)).params
            if name in _REFUSED:
                refuse_on_ring(name, parameters)
            if parameters.get("transport"):
                raise RequestError("--transport is not for ooc launch", "Its ranks speak over TCP; leave it out.")
            if parameters.get("watch"):
                raise RequestError("--watch is for one machine", "Look at a rank's run, where it is: ooc watch RUN")
            return Chosen(name, command, rest, parameters)
    raise RequestError(
        f"ooc {' '.join(words[:2])} cannot run on several machines", f"There are: {', '.join(commands)}."
    )
