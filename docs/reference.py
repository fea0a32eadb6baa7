"""The reference pages: Markdown of the commands, and of the public names of the Python interface. A comment in a page,
such as `<!-- reference -->`, says where the generated part goes.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from typer import Context
from typer.main import get_command

import samplers
from ooc.cli.app import app
from samplers.factorization.options import FactorizationOptions
from samplers.lda.options import LdaOptions
from samplers.options import DescribedField, TrainingResources, described
from samplers.regression.options import RegressionOptions, SoftmaxOptions

T = TypeVar("T")

PLACE = "<!-- reference -->"
PACKAGES = ("samplers", "ooc", "blocks")
ESTIMATORS = {  # by page
    "api/lda": "LatentDirichletAllocation",
    "api/factorization": "MatrixFactorization",
    "api/lasso": "Lasso",
    "api/elastic_net": "ElasticNet",
    "api/lasso_cv": "LassoCV",
    "api/elastic_net_cv": "ElasticNetCV",
    "api/logistic": "LogisticRegression",
    "api/logistic_cv": "LogisticRegressionCV",
    "api/poisson": "PoissonRegressor",
    "api/poisson_cv": "PoissonRegressorCV",
    "api/softmax": "SoftmaxRegression",
}
SUBJECTS = {  # names of `ooc` and `blocks` by page
    "api/programs": ("Field", "Job", "LocalState", "Phase", "StaticProgram"),
    "api/stochastic": ("Local", "Shared", "StochasticEngine", "StochasticProgram"),
    "api/dynamic": ("DynamicEngine", "DynamicProgram"),
    "api/engines": ("ArraySpec", "ProgramSpec", "StaticEngine", "make_plan"),
    "api/runs": ("ProgramRun", "Run", "create_run", "fit", "train"),
    "api/datasets": (
        *("Dataset", "Design", "Matrix", "Samples", "CorpusRequest", "DesignRequest", "Synthetic", "ingest"),
        *("ingest_design", "ingest_documents", "ingest_samples", "synthesize"),
        *("write_corpus", "write_matrix", "write_npz", "write_samples"),
        *("CorpusWriter", "DesignWriter", "RatingsWriter", "SamplesWriter"),
    ),
    "api/errors": ("Interrupted", "OocError", "RequestError", "WorkFailed"),
}


def commands() -> str:
    """Return all commands with their arguments and options."""
    found = sorted(walk(get_command(app), ("ooc",)), key=lambda each: each[0])
    return "\n\n".join(section for path, command in found for section in _told(path, command))


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command's subcommands that are not hidden, each with the words that invoke it."""
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
    yield "\n".join(["| Argument or option | Meaning |", "| --- | --- |", *rows])


def _row(parameter: Any, context: Any) -> str | None:
    record = parameter.get_help_record(context)
    if record is None or record[0] == "--help":
        return None
    name, said = (" ".join(text.split()).replace("|", "\\|") for text in record)
    said = re.sub(r"\S*\\[bw]\S*(?=])", r"`\g<0>`", said)  # a regular expression
    return f"| `{name}` | {said} |"


def estimator(name: str) -> str:
    """Tables of the parameters and attributes of an estimator, and its methods."""
    kind = getattr(samplers, name)
    defaults = {each.name: (_default(kind, each), meaning(kind, each.name)) for each in signature_of(kind).values()}
    taken = _grouped({name: said for name, (_, said) in defaults.items()})
    rows = [f"| {_code(names)} | {', '.join(defaults[name][0] for name in names)} | {said} |" for said, names in taken]
    learnt = [
        f"| {_code(names)} | {entry.type} | {_sentence(entry.text)} |" for entry, names in _grouped(attributes(kind))
    ]
    methods = [f".. auto{_kind_of(kind, each)}:: samplers.{name}.{each}" for each in methods_of(kind)]
    return "\n\n".join(
        [
            "## Parameters",
            "\n".join(["| Parameter | Default | Meaning |", "| --- | --- | --- |", *rows]),
            "## Attributes",
            "\n".join(["| Attribute | Type and shape | Meaning |", "| --- | --- | --- |", *learnt]),
            "## Methods",
            "```{eval-rst}\n" + "\n\n".join(methods) + "\n```",
        ]
    )


def _grouped(said: Mapping[str, T]) -> list[tuple[T, list[str]]]:
    """Group names with the same description, in the order of the first of each group."""
    return [(entry, [name for name in said if said[name] == entry]) for entry in dict.fromkeys(said.values())]


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _default(kind: type, parameter: inspect.Parameter) -> str:
    """Return the default of a parameter; if it is None, that of the option."""
    stated = re.search(r"\[default: (.+?)\]", _option_help(kind, parameter.name))
    return _parameters(stated[1]) if parameter.default is None and stated else f"`{parameter.default!r}`"


def meaning(kind: type, parameter: str) -> str:
    """Return the description of an estimator's parameter: the help of the option of the same meaning, or the
    docstring.
    """
    said = re.sub(r"\s*\[default: .+?\]", "", _option_help(kind, parameter))
    said = re.sub(r" \((?:scikit-learn|gensim|MALLET|glmnet)'s [^()]*\)", "", said)
    known = documented(kind, "Parameters")
    return _sentence(_parameters(said) or (known[parameter].text if parameter in known else ""))


def _parameters(said: str) -> str:
    """Return the help of an option, with the names of options replaced by those of parameters."""
    return re.sub(r"`?--([a-z][a-z-]+)`?", lambda option: f"`{option[1].replace('-', '_')}`", said)


def _sentence(said: str) -> str:
    """Return a description as a cell of a table: with a capital letter first, a full stop at the end, and links to
    pages.
    """
    linked = re.sub(r"docs/([\w-]+)\.md", r"[](../\1.md)", said).replace("|", "\\|")
    begins = linked[:1].upper() if linked[1:2].isalpha() else linked[:1]  # a single letter is a number, such as p
    return f"{begins}{linked[1:].rstrip('.')}." if linked else ""


def _option_help(kind: type, parameter: str) -> str:
    options = getattr(kind, "_options", None)
    found = [each.option for each in described(options).values() if each.parameter == parameter] if options else []
    return found[0].help if found else ""


class DocstringEntry(NamedTuple):
    """An entry of a section of a docstring: the type, and the description."""

    type: str
    text: str


def documented(kind: type, section: str) -> dict[str, DocstringEntry]:
    """Return the entries of a section in the NumPy docstrings of a class and its bases, by name."""
    found: dict[str, DocstringEntry] = {}
    for base in kind.__mro__:
        text = inspect.cleandoc(base.__dict__.get("__doc__") or "")
        body = re.search(rf"^{section}\n-+\n(.*?)(?=^\w[^\n]*\n-{{3,}}$|\Z)", text, re.M | re.S)
        entries = re.findall(r"^(\S[^\n]*)\n((?:[ \t]+[^\n]*\n?|\n)+)", body[1] + "\n", re.M) if body else []
        for head, said in entries:
            names, _, stated = head.partition(" : ")
            if not said.lstrip().startswith("See `"):  # a base class describes it
                entry = DocstringEntry(stated.replace("|", "\\|"), " ".join(said.split()))
                found |= {name: entry for name in re.split(r",\s*", names) if name not in found}
    return found


def attributes(kind: type) -> dict[str, DocstringEntry]:
    """Return the attributes that `fit` sets, by name."""
    stated = {name for base in kind.__mro__ for name in (*vars(base).get("__annotations__", ()), *vars(base))}
    known = documented(kind, "Attributes")
    names = sorted(name for name in stated if name.endswith("_") and not name.startswith("_"))
    return {name: known[name] for name in known if name in names} | {
        name: DocstringEntry("", "") for name in names if name not in known
    }


def methods_of(kind: type) -> list[str]:
    """Return the names of methods, and of properties that are methods for some parameters only."""
    names = [name for name in dir(kind) if not name.startswith("_") and not name.endswith("_")]
    return [name for name in names if name not in signature_of(kind) and _kind_of(kind, name)]


def _kind_of(kind: type, name: str) -> str:
    member = inspect.getattr_static(kind, name)
    return "method" if inspect.isroutine(member) else "property" if isinstance(member, property) else ""


def subject(page: str) -> str:
    """Return all public names that a page describes, and the base classes that they share."""
    found = public_names()
    things = {found[name]: _thing(found[name]) for name in SUBJECTS[page]}
    bases = [base for thing in things.values() if inspect.isclass(thing) for base in thing.__mro__[1:]]
    ours = [base for base in bases if base.__module__.startswith(PACKAGES) and base not in map(_thing, found.values())]
    things |= {f"{base.__module__}.{base.__qualname__}": base for base in ours}
    return "\n\n".join(_directive(path, thing) for path, thing in things.items())


def public_names() -> dict[str, str]:
    """Return the dotted path of each public name of the packages, without the estimators, which two packages export."""
    modules = {package: importlib.import_module(package) for package in PACKAGES}
    return {
        name: f"{package}.{name}"
        for package, module in modules.items()
        for name in sorted(module.__all__)
        if name not in samplers.__all__
    }


def _thing(path: str) -> Any:
    package, _, name = path.rpartition(".")
    return getattr(importlib.import_module(package), name)


def _directive(path: str, thing: Any) -> str:
    kind = "function" if not inspect.isclass(thing) else "exception" if issubclass(thing, Exception) else "class"
    options = ":members:" if kind == "class" else ""
    return f"## {path.rpartition('.')[2]}\n\n```{{eval-rst}}\n.. auto{kind}:: {path}\n   {options}\n```"


def interface() -> str:
    """Return all public names with the first lines of their docstrings."""
    pages = {name: page for page, names in SUBJECTS.items() for name in names}
    rows = [
        f"| [{name}]({pages[name]}.md#{name.lower()}) | `{path.rpartition('.')[0]}` | {_first_line(_thing(path))} |"
        for name, path in sorted(public_names().items(), key=lambda each: each[0].lower())
    ]
    return "\n".join(["| Name | Package | Summary |", "| --- | --- | --- |", *rows])


def _first_line(thing: Any) -> str:
    first = inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0]
    sentence = re.match(r"(.+?[.;:])(?:\s|$)", " ".join(first.split()))
    return re.sub(r"[;:]$", ".", sentence[1] if sentence else first).replace("|", "\\|")


def options() -> str:
    """Return a table for each model: each option, the interfaces that have it, and why the others do not."""
    return "\n\n".join(section for model in MODELS for section in _options(model))


class TrainedModel(NamedTuple):
    """A training command, the classes that describe its options, and its estimators."""

    command: str
    kinds: Sequence[type]
    estimators: Sequence[type]


MODELS = (
    TrainedModel("train lda", (LdaOptions, TrainingResources), (samplers.LatentDirichletAllocation,)),
    TrainedModel("train mf", (FactorizationOptions, TrainingResources), (samplers.MatrixFactorization,)),
    TrainedModel("train softmax", (SoftmaxOptions, TrainingResources), (samplers.SoftmaxRegression,)),
    TrainedModel(
        "train lasso|logistic|poisson",
        (RegressionOptions, TrainingResources),
        (samplers.Lasso, samplers.ElasticNet, samplers.LogisticRegression, samplers.PoissonRegressor),
    ),
)


IN_PROCESS = {  # reasons why estimators that train in their own process do not have an option
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


def _where(each: DescribedField, estimators: Sequence[type]) -> list[str]:
    """Return the names of an option in each interface, or the reason in parentheses why it has none; and what accepts
    it.
    """
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


def estimator_names(each: DescribedField) -> tuple[str, ...]:
    """Return the names of an option in estimators: a classifier's penalty is the inverse of a regression's."""
    return ("alpha", "C") if each.field == "level" else (each.parameter,)


def signature_of(estimator: type) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(estimator).parameters


REFERENCES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "options": options,
    "python": interface,
    **{page: partial(estimator, name) for page, name in ESTIMATORS.items()},
    **{page: partial(subject, page) for page in SUBJECTS},
}


def filled(page: str, text: str) -> str:
    """Return the text of a page with its generated part filled in."""
    return text.replace(PLACE, REFERENCES[page]()) if page in REFERENCES else text
