"""The reference pages: Markdown of the command line, from its commands, and of the Python interface, from its names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from typer import Context
from typer.main import get_command

import samplers
from ooc.cli.app import app
from samplers.factorization.options import FactorizationOptions
from samplers.lda.options import LdaOptions
from samplers.options import Described, Resources, described
from samplers.regression.options import RegressionOptions, SoftmaxOptions

PACKAGES = ("samplers", "ooc", "blocks")


def commands() -> str:
    """All commands with their arguments and options."""
    found = sorted(walk(get_command(app), ("ooc",)), key=lambda each: each[0])
    return "\n\n".join(section for path, command in found for section in _told(path, command))


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands below one that are not hidden, each with the words it is called by."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        if not below.hidden:
            yield from walk(below, (*path, name))


def _told(path: tuple[str, ...], command: Any) -> Iterator[str]:
    yield f"## {' '.join(path)}"
    context = Context(command, info_name=" ".join(path))
    yield f"```text\n{' '.join([*path, *command.collect_usage_pieces(context)])}\n```"
    yield command.help or ""
    rows = [row for parameter in command.params if (row := _row(parameter, context)) is not None]
    yield "\n".join(["| | |", "| --- | --- |", *rows])


def _row(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or record[0] == "--help":
        return None
    name, said = (" ".join(text.replace("|", "\\|").split()) for text in record)
    return f"| `{name}` | {said} |"


def interface() -> str:
    """All public names of the packages."""
    return "\n\n".join(_package(name) for name in PACKAGES if getattr(importlib.import_module(name), "__all__", ()))


def _package(name: str) -> str:
    """Its own names, and the classes that these have in common."""
    package = importlib.import_module(name)
    things = {f"{name}.{member}": getattr(package, member) for member in sorted(package.__all__)}
    public = {path: thing for path, thing in things.items() if thing.__module__.startswith(f"{name}.")}
    bases = [base for thing in public.values() if inspect.isclass(thing) for base in thing.__mro__[1:]]
    shared = [base for base in bases if base.__module__.startswith(f"{name}.") and base not in public.values()]
    public |= {f"{base.__module__}.{base.__qualname__}": base for base in shared}
    sections = [_directive(path, thing) for path, thing in public.items()]
    return "\n\n".join([f"## {name}", (package.__doc__ or "").strip(), *sections])


def _directive(path: str, thing: Any) -> str:
    kind = "function" if not inspect.isclass(thing) else "exception" if issubclass(thing, Exception) else "class"
    options = ":members:" if kind == "class" else ""
    return f"### {path.rpartition('.')[2]}\n\n```{{eval-rst}}\n.. auto{kind}:: {path}\n   {options}\n```"


def options() -> str:
    """A table for each model of all its options, and where each works; else why not."""
    return "\n\n".join(section for model in MODELS for section in _options(model))


class TrainedModel(NamedTuple):
    """A command of training, the classes that describe its options, and its estimators."""

    command: str
    kinds: Sequence[type]
    estimators: Sequence[type]


MODELS = (
    TrainedModel("train lda", (LdaOptions, Resources), (samplers.LatentDirichletAllocation,)),
    TrainedModel("train mf", (FactorizationOptions, Resources), (samplers.MatrixFactorization,)),
    TrainedModel("train softmax", (SoftmaxOptions, Resources), (samplers.SoftmaxRegression,)),
    TrainedModel(
        "train lasso|logistic",
        (RegressionOptions, Resources),
        (samplers.Lasso, samplers.ElasticNet, samplers.LogisticRegression),
    ),
)


IN_PROCESS = {  # why estimators that train in their own process do not have an option
    "workers": "one, as SGD goes from sample to sample",
    "memory_bytes": "data and model are in memory",
    "quiet": "tells nothing but warnings",
}


def _options(model: TrainedModel) -> Iterator[str]:
    yield f"## ooc {model.command}"
    names = " and ".join(f"`{estimator.__name__}`" for estimator in model.estimators)
    rows = [_where(each, model.estimators) for kind in model.kinds for each in described(kind).values()]
    head = f"| command, file, variable | Python | {names} | several machines | only for |"
    yield "\n".join([head, "| --- " * 5 + "|", *(f"| {' | '.join(cells)} |" for cells in rows)])


def _where(each: Described, estimators: Sequence[type]) -> list[str]:
    """The names of an option in each interface, or in brackets why it has none there; and what takes it."""
    option = each.option
    parameters = [name for name in estimator_names(each) if any(name in signature_of(kind) for kind in estimators)]
    machines = f"no: {option.alone}" if option.alone else "only there" if option.together else "yes"
    return [
        f"`--{each.name}`" if option.help else f"({option.without['command']})",
        f"`{each.field}`",
        ", ".join(f"`{name}`" for name in parameters)
        or f"({option.without.get('estimator') or IN_PROCESS[each.field]})",
        machines,
        ", ".join(option.takes),
    ]


def estimator_names(each: Described) -> tuple[str, ...]:
    """Those that an option has in estimators: a classifier's penalty is the inverse of a regression's."""
    return ("alpha", "C") if each.field == "level" else (each.parameter,)


def signature_of(estimator: type) -> Mapping[str, Any]:
    return inspect.signature(estimator).parameters


REFERENCES = {"commands": commands, "options": options, "python": interface}
