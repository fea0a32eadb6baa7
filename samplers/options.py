"""Option descriptions: the annotations of the fields of frozen dataclasses, the only place that describes an option.

They define the command-line option and its help, the key in config files and the environment variable
(`ooc.cli.options`), the argument of the training function in Python (`by_keywords`), the validation of the value, which
options several machines reject, and the parameter of an estimator.
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
    """Description of an option; its name, type and default are those of the annotated field.

    help: one line; an option without help is for Python only.
    name, flags: name on the command line, if it is not the field's name;
    flags: all spellings.
    metavar: placeholder for the value.
    group: heading in the help; if empty, the `group` of the class.
    least, most: bounds, also checked by the command line.
    choices: allowed words, as "a|b"; an upper-case word stands for any value.
    checked_here: whether unknown words are refused here, not by the engine.
    read: function that parses the value from the text and the option's name.
    takes: samplers or methods that have the option; empty for all.
    alone: remedy on several machines, where the option is not allowed unless its value is the default or in `harmless`.
    together: remedy on one machine, for an option that needs several.
    parameter: name in the estimator, if it is not the field's name.
    without: why the "command" or the "estimator" does not have the option.
    """

    help: str = ""
    name: str = ""
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    group: str = ""
    least: float | None = None
    most: float | None = None
    choices: str = ""
    checked_here: bool = True
    read: Callable[[str, str], Any] | None = None
    takes: tuple[str, ...] = ()
    alone: str = ""
    harmless: tuple[Any, ...] = ()
    together: str = ""
    parameter: str = ""
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """Return the allowed words, if no other values are allowed."""
        words = self.choices.split("|") if self.choices else []
        return words if all(word.islower() for word in words) else []


class DescribedField(NamedTuple):
    """A field and its description.

    type: type of values, without None.
    default: MISSING if the option is required.
    """

    field: str
    option: Option
    type: Any
    default: Any

    @property
    def name(self) -> str:
        """Return the name on the command line and in a config file, such as evaluate-every."""
        return self.option.name or self.field.replace("_", "-")

    @property
    def parameter(self) -> str:
        """Return the name in an estimator."""
        return self.option.parameter or self.field

    @property
    def is_required(self) -> bool:
        return self.default is MISSING


def described(options: type) -> Mapping[str, DescribedField]:
    """Return the options of a class by field name, in definition order."""
    return _described(options)


@cache
def _described(options: type) -> Mapping[str, DescribedField]:
    found = {}
    for name, annotation in get_type_hints(options, include_extras=True).items():
        kind, option = get_args(annotation)[:2]
        alternatives, default = [one for one in get_args(kind) if one is not NoneType], getattr(options, name, MISSING)
        kind = alternatives[0] if len(alternatives) == 1 and default is None else kind
        found[name] = DescribedField(name, option, kind, default)
    return MappingProxyType(found)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base class of options; raises RequestError for values that no model allows."""

    def __post_init__(self) -> None:
        for each in described(type(self)).values():
            value, option = getattr(self, each.field), each.option
            if value is None:
                continue
            if option.least is not None and value < option.least:
                raise RequestError(f"--{each.name} must be at least {option.least}, got {value}")
            if option.most is not None and value > option.most:
                raise RequestError(f"--{each.name} must be at most {option.most}, got {value}")
            if option.words and option.checked_here and value not in option.words:
                known = f"Choose one of: {', '.join(option.words)}."
                raise RequestError(f"--{each.name}: unknown {each.name.replace('-', ' ')} {value!r}", known)


MODEL, TRAINING, EVALUATION, ADVANCED = "Model", "Training", "Evaluation", "Advanced training"  # headings in the help
INPUT, WORDS, LAYOUT = "Input", "Words and vocabulary", "Layout of the dataset"
RESOURCES, SEVERAL = "Resources", "Several machines"
OUTPUT, GENERAL = "Output", "General options"

SEED_HELP = "Random seed; the same seed gives the same model, bit for bit (scikit-learn's random_state)."
Seed = Annotated[int, Option(SEED_HELP, least=0, group=TRAINING, parameter="random_state")]
SyncPerPass = Annotated[
    int | None,
    Option(
        "Number of times per pass that splash combines its parallel learners [default: 1].",
        least=1,
        group=ADVANCED,
        takes=("splash",),
    ),
]


def size_of(text: str, option: str) -> int:
    """Parse a size such as 2GB; returns bytes."""
    from blocks.memory import parse_size

    return parse_size(text, option)


@dataclass(frozen=True, kw_only=True)
class TrainingResources(Options):
    """Resources and location of a run; the model does not depend on them."""

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
            "Save the state and stop after this many seconds; continue with `ooc resume`.",
            metavar="SECONDS",
            without={"estimator": "no run remains after fit; a callback can end training"},
        ),
    ] = None
    scratch: Annotated[
        Path | None,
        Option(
            "Directory on a faster disk for the state of the run [default: inside RUN].",
            without={"estimator": "its run is in the directory of tempfile"},
        ),
    ] = None
    on_node: Annotated[
        bool,
        Option(
            together="Set --scratch to the path of a directory.",
            without={"command": "is --scratch node", "estimator": "trains on one machine"},
        ),
    ] = False
    overwrite: Annotated[
        bool,
        Option(
            "Replace an existing run.",
            group=OUTPUT,
            without={"estimator": "fit always starts a new run, except with warm_start"},
        ),
    ] = False
    quiet: Annotated[bool, Option("Print only results, warnings and errors.", group=GENERAL, parameter="verbose")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(Options):
    """Options for resuming a run of any model."""

    iterations: Annotated[
        int | None, Option("Total number of iterations of the run, including those done [default: as planned].")
    ] = None
    program: Annotated[
        str | None,
        Option("Class of the program, for a run of your own program; its module is imported.", metavar="MODULE:CLASS"),
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
            "Option of the program, such as clusters=8; the value is JSON, or otherwise a string. Can be repeated.",
            name="set",
            metavar="NAME=VALUE",
        ),
    ] = ()
    iterations: Annotated[int, Option("Passes over the data.", least=1)] = 100
    evaluate_every: Annotated[int, Option("Iterations between evaluations of the objective.", least=1)] = 1


def takers(options: type) -> dict[str, tuple[str, ...]]:
    """Return the samplers or methods that have each option, for options that only some have."""
    return {name: each.option.takes for name, each in described(options).items() if each.option.takes}


def check_machines(options: type, values: Mapping[str, Any], *, several: bool) -> None:
    """Raise RequestError for an option that does not support several machines, or requires them.

    values: option values by field name.
    """
    for each in described(options).values():
        value, option = values.get(each.field, each.default), each.option
        if several and option.alone and value not in (each.default, *option.harmless):
            raise RequestError(f"--{each.name} {value} cannot be used on several machines", option.alone)
        if not several and option.together and value is not None:
            raise RequestError(f"--{each.name} can only be used on several machines", option.together)


def of_several(ring: Ring | None) -> Ring | None:
    """Return a ring of several machines; None for a ring of one machine, which trains as if there were no ring."""
    return ring if ring is not None and ring.ranks > 1 else None


def by_keywords(
    train: Callable[..., dict[str, Any]], options: type, *, positional: int = 0
) -> Callable[..., dict[str, Any]]:
    """Make a training function accept options and resources as keywords, besides data, path, ring and callback.

    positional: number of options that can also be passed by position.
    """

    own = signature(train).parameters
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=Parameter.empty if each.is_required else each.default)
        for kind in (options, TrainingResources)
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
            for kind in (options, TrainingResources)
        ]
        return train(**found, options=made[0], resources=made[1])

    by_name.__signature__ = whole  # type: ignore[attr-defined]
    return by_name
