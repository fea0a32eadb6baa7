"""Fields: the arrays of a program, declared like its options as attributes of its class.

class NMF(StaticProgram):
    rank: int = 10                              # an option
    left = Field("row", "rank", "float32")      # an array with a vector of `rank` numbers for each row
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import get_annotations, signature
from typing import Any, ClassVar, Literal, get_origin, get_type_hints

import numpy as np
from msgspec import ValidationError, convert
from xxhash import xxh3_64_digest

from blocks.errors import RequestError
from blocks.stored_dataset import StoredDataset
from ooc.workers.shared_arrays import ArraySpec

Draw = Callable[[np.random.Generator, tuple[int, ...]], Any]  # function that draws an array of the given shape
_OWN = ("blocks", "builtins", "ooc", "samplers")  # packages whose classes declare options in `__init__`
_RESERVED = {"exported", "initial", "maps", "phases", "reading_phases", "state_name", "sums", "trains_on_shards"}


@dataclass(frozen=True)
class Field:
    """Declaration of an array of a program.

    Parameters
    ----------
    per : "", "row", "column" or "work"
        First axis of the array: one element for each "row" (or document, or sample) or "column" (or word) of the
        dataset; `Job.own` returns the elements of a part. "" for an array that all parts read and that `aggregate` or
        `begin` changes. "work", in a stochastic program, for a temporary array of `process` that is not kept between
        samples.
    shape : int, str or tuple of these
        Shape of an element; a string is the name of an option whose value is used.
    dtype : str
        Data type of the array.
    initial : number or callable
        Initial value, or a function of a `numpy.random.Generator` and a shape. The generator is seeded with the option
        ``seed``, if there is one, and the name of the field.
    derived : bool
        Whether `begin` recomputes the array before each phase, so that it need not be committed.
    summed : bool
        Whether `update` adds integers to the array, in ``job.delta[name]``; the sums over all parts are added to the
        array at the end of a phase or stage.
    """

    per: Literal["", "row", "column", "work"] = ""
    shape: int | str | tuple[int | str, ...] = ()
    dtype: str = "float64"
    initial: float | Draw = 0
    derived: bool = False
    summed: bool = False

    def shape_in(self, program: Any) -> tuple[int, ...]:
        """Return the shape of an element, given the options of the program."""
        sizes = self.shape if isinstance(self.shape, tuple) else (self.shape,)
        return tuple(getattr(program, size) if isinstance(size, str) else size for size in sizes)

    def spec(self, dataset: StoredDataset, program: Any) -> ArraySpec:
        """Return the shape and dtype of the whole array."""
        shape = self.shape_in(program)
        if self.per == "row":
            return ArraySpec((int(dataset.block_bounds[-1]), *shape), self.dtype, self.per)
        if self.per == "column":
            return ArraySpec((int(dataset.slice_bounds[-1]), *shape), self.dtype, self.per)
        return ArraySpec(shape, self.dtype)

    def fill(self, array: np.ndarray, seed: list[int]) -> None:
        """Set an array to its initial values."""
        array[...] = self.initial(np.random.default_rng(seed), array.shape) if callable(self.initial) else self.initial


def program_fields(program: type) -> dict[str, Field]:
    """Return the fields of a class and its base classes in the order of declaration."""
    return {
        name: value
        for parent in reversed(program.__mro__)
        for name, value in vars(parent).items()
        if isinstance(value, Field)
    }


def program_options(program: type) -> dict[str, Any]:
    """Return the types of the options that a user's class declares as annotated attributes."""
    users = [each for each in program.__mro__ if each.__module__.partition(".")[0] not in _OWN]
    declared = {name for each in users for name in get_annotations(each)}
    return {
        name: kind
        for name, kind in (get_type_hints(program) if declared else {}).items()
        if name in declared - _RESERVED and get_origin(kind) is not ClassVar and not name.startswith("_")
    }


def convert_option(program: Any, name: str, value: Any, kind: Any) -> Any:
    """Convert the value of an option to its type.

    Raises RequestError if the value cannot be converted.
    """
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise RequestError(
            f"the option {name!r} of the program {type(program).__name__} is {value!r}: {error}"
        ) from error


def set_options(program: Any, given: Mapping[str, Any]) -> None:
    """Set the options of a program to given values or defaults.

    Raises RequestError for unknown or invalid options.
    """
    kinds, name_of = program_options(type(program)), type(program).__name__
    for name, value in given.items():
        if name not in kinds:
            known = signature(type(program)).parameters.values()
            takes = dict.fromkeys([*kinds, *(each.name for each in known if each.kind is each.KEYWORD_ONLY)])
            raise RequestError(
                f"the program {name_of} has no option {name!r}", f"Its options are: {', '.join(takes) or 'none'}."
            )
        setattr(program, name, convert_option(program, name, value, kinds[name]))
    if missing := [name for name in kinds if not hasattr(program, name)]:
        raise RequestError(
            f"the program {name_of} needs the option {missing[0]!r}", f"Set it with: --set {missing[0]}=VALUE"
        )


@contextmanager
def common_fields_unchanged(program: Any, phase: Any, arrays: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Raise RequestError if the workers change a field that is neither per row nor per column.

    Workers that write to the same element overwrite each other's results.
    """
    names = [name for name, field in program_fields(type(program)).items() if not field.per and name in arrays]
    before = {name: xxh3_64_digest(np.ascontiguousarray(arrays[name]).data) for name in names}
    yield
    for name in names:
        if xxh3_64_digest(np.ascontiguousarray(arrays[name]).data) != before[name]:
            raise RequestError(
                f"in the phase {phase.name!r}, `update` changes the array {name!r}, which all parts share",
                "Return the numbers from `update` and add them up in `aggregate`; or declare the array with summed=True"
                " and add integers to job.delta.",
            )
