"""The description of an option: the annotation of a field of a frozen dataclass, and nothing anywhere else.

From it are made the option of the command and its help, the key of a file of options and the variable
(`ooc.cli.options`), the argument of the training function in Python (`by_keywords`), the check of its value, what
several machines refuse, and the parameter of an estimator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from functools import cache, wraps
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

from blocks.errors import RequestError

if TYPE_CHECKING:
    from ooc.ring.ring import Ring


@dataclass(frozen=True, eq=False)
class Option:
    """What is known of an option besides the name, the type and the default of its field.

    help: one line for the command line; an option without it is for Python alone.
    name, flags: on the command line, where it is not that of the field; all of them where there are several.
    metavar: placeholder for the value in help. group: heading of the option in help; empty: the `group` of its class.
    least, most: smallest and largest value, which the command line checks, too. choices: the possible words, as "a|b";
    one in capitals stands for any. called: what a wrong word is not, in messages; empty: the engine checks it.
    read: turns the text of the command line into a value, given the text and the option's name for messages.
    takes: samplers or methods that have it, none for all.
    alone: what to do on several machines, which cannot use it, unless its value is the default or in `harmless`.
    together: what to do on one machine, if it is for several.
    parameter: its name in the estimator, where it is not that of the field. without: why the "command" or the
    "estimator" does not have it.
    """

    help: str = ""
    name: str = ""
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    group: str = ""
    least: float | None = None
    most: float | None = None
    choices: str = ""
    called: str = "known"
    read: Callable[[str, str], Any] | None = None
    takes: tuple[str, ...] = ()
    alone: str = ""
    harmless: tuple[Any, ...] = ()
    together: str = ""
    parameter: str = ""
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The possible words, if there are no others."""
        words = self.choices.split("|") if self.choices else []
        return words if all(word.islower() for word in words) else []


class Described(NamedTuple):
    """A field with its description. type: of the value, None being left out. default: MISSING if it has to be given."""

    field: str
    option: Option
    type: Any
    default: Any

    @property
    def name(self) -> str:
        """The name on the command line and in a file, as evaluate-every."""
        return self.option.name or self.field.replace("_", "-")

    @property
    def parameter(self) -> str:
        """The name in an estimator."""
        return self.option.parameter or self.field

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def may_be_none(self) -> bool:
        return self.default is None


def described(options: type) -> Mapping[str, Described]:
    """The options of a class by the names of its fields, in order."""
    return _described(options)


@cache
def _described(options: type) -> Mapping[str, Described]:
    found = {}
    for name, annotation in get_type_hints(options, include_extras=True).items():
        kind, option = get_args(annotation)[:2]
        alternatives, default = [one for one in get_args(kind) if one is not NoneType], getattr(options, name, MISSING)
        kind = alternatives[0] if len(alternatives) == 1 and default is None else kind
        found[name] = Described(name, option, kind, default)
    return MappingProxyType(found)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a model; RequestError for a value that none can have."""

    def __post_init__(self) -> None:
        for each in described(type(self)).values():
            value, option = getattr(self, each.field), each.option
            if value is None:
                continue
            if option.least is not None and value < option.least:
                raise RequestError(f"--{each.name} must be at least {option.least}, got {value}")
            if option.most is not None and value > option.most:
                raise RequestError(f"--{each.name} must be at most {option.most}, got {value}")
            if option.words and option.called and value not in option.words:
                known = f"Choose one of: {', '.join(option.words)}."
                raise RequestError(f"--{each.name}: {value!r} is not {option.called}", known)


MODEL, TRAINING, EVALUATION, ADVANCED = "Model", "Training", "Evaluation", "Advanced training"  # headings of help
INPUT, WORDS, LAYOUT = "Input", "Words and vocabulary", "Layout of the dataset"
RESOURCES, OUTPUT, GENERAL = "Resources", "Output", "General options"

SEED_HELP = "Random seed; the same seed gives the same model, bit for bit (scikit-learn's random_state)."
Seed = Annotated[int, Option(SEED_HELP, least=0, group=TRAINING, parameter="random_state")]
SyncPerPass = Annotated[
    int | None,
    Option(
        "Number of times in a pass that splash combines its parallel learners [default: 1].",
        least=1,
        group=ADVANCED,
        takes=("splash",),
    ),
]


def size_of(text: str, option: str) -> int:
    """Bytes of a size as 2GB."""
    from blocks.memory import parse_size

    return parse_size(text, option)


@dataclass(frozen=True, kw_only=True)
class Resources(Options):
    """What a training may take and where it works: the model does not depend on it."""

    group = RESOURCES

    workers: Annotated[
        int | None,
        Option(
            "Number of worker processes (scikit-learn's n_jobs) [default: all cores, or the CPU quota].",
            least=1,
            parameter="n_jobs",
        ),
    ] = None
    memory_bytes: Annotated[
        int | None,
        Option(
            "Memory limit of all processes together, such as 2GB [default: four fifths of the free memory].",
            name="memory",
            metavar="SIZE",
            read=size_of,
            parameter="memory",
        ),
    ] = None
    max_time: Annotated[
        float | None,
        Option(
            "Stop after this many seconds with everything saved; `ooc resume` continues.",
            metavar="SECONDS",
            without={"estimator": "its run is gone after fit; a callback can end the training"},
        ),
    ] = None
    scratch: Annotated[
        Path | None,
        Option(
            "Directory on a faster disk for the state of the training [default: inside RUN].",
            without={"estimator": "its run is where tempfile has its directories"},
        ),
    ] = None
    on_node: Annotated[
        bool,
        Option(
            together="Give --scratch the path of a directory.",
            without={"command": "is --scratch node", "estimator": "is on one machine"},
        ),
    ] = False
    overwrite: Annotated[
        bool,
        Option(
            "Replace an existing run.", group=OUTPUT, without={"estimator": "its run is a new one, or warm_start's"}
        ),
    ] = False
    quiet: Annotated[bool, Option("Print only results, warnings and errors.", group=GENERAL, parameter="verbose")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(Options):
    """How a run of any model goes on."""

    iterations: Annotated[int | None, Option("Total number of iterations to train to [default: as planned].")] = None
    program: Annotated[
        str | None,
        Option("Class of your own program, if the run needs one; its module is imported.", metavar="MODULE:CLASS"),
    ] = None
    data: Annotated[Path | None, Option("New path of the run's dataset, if the dataset was moved without the run.")] = (
        None
    )
    held_out: Annotated[
        Path | None, Option("New path of the run's held-out dataset, if it was moved without the run.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(Options):
    """Options of `ooc train program`."""

    program: Annotated[str, Option()]
    settings: Annotated[
        Sequence[str],
        Option(
            "Option of the program, as clusters=8; the value is JSON, or text. Can be repeated.",
            name="set",
            metavar="NAME=VALUE",
        ),
    ] = ()
    iterations: Annotated[int, Option("Passes over the data.", least=1)] = 100
    evaluate_every: Annotated[int, Option("Iterations between values of the objective.", least=1)] = 1


def takers(options: type) -> dict[str, tuple[str, ...]]:
    """The samplers or methods that have an option, of those that not all have."""
    return {name: each.option.takes for name, each in described(options).items() if each.option.takes}


def check_machines(options: type, values: Mapping[str, Any], *, several: bool) -> None:
    """Raise RequestError for an option of a training that several machines cannot take, or only they can.

    values: by the names of fields, as the command line or Python gives them.
    """
    for each in described(options).values():
        value, option = values.get(each.field, each.default), each.option
        if several and option.alone and value not in (each.default, *option.harmless):
            raise RequestError(f"--{each.name} {value} cannot be used on several machines", option.alone)
        if not several and option.together and value is not None:
            raise RequestError(f"--{each.name} can only be used on several machines", option.together)


def of_several(ring: Ring | None) -> Ring | None:
    """A ring of several machines; None for one of a single machine, which trains as if there were none."""
    return ring if ring is not None and ring.ranks > 1 else None


def by_keywords(
    train: Callable[..., dict[str, Any]], options: type, *, positional: int = 0
) -> Callable[..., dict[str, Any]]:
    """Let a training function take its options and resources by their names, besides data, path, ring and callback.

    positional: how many of the options can be given without their names.
    """

    own = signature(train).parameters
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=Parameter.empty if each.is_required else each.default)
        for kind in (options, Resources)
        for name, each in described(kind).items()
    ]
    named[:positional] = [each.replace(kind=Parameter.POSITIONAL_OR_KEYWORD) for each in named[:positional]]
    paths = [each for name, each in own.items() if name in ("data", "path")]
    rest = [each.replace(kind=Parameter.KEYWORD_ONLY) for name, each in own.items() if name in ("ring", "callback")]
    whole = signature(train).replace(parameters=[*paths, *named, *rest])

    @wraps(train)
    def by_name(*args: Any, **given: Any) -> dict[str, Any]:
        found = whole.bind(*args, **given).arguments
        made = [
            kind(**{name: found.pop(name) for name in described(kind) if name in found})
            for kind in (options, Resources)
        ]
        return train(**found, options=made[0], resources=made[1])

    by_name.__signature__ = whole  # type: ignore[attr-defined]
    return by_name
