"""Base class and context managers of writers, with which scripts write datasets piece by piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from blocks.append import Target, new_dataset, require_replaceable
from blocks.errors import RequestError, in_parameters, reworded
from blocks.ingestion.memory import Budget
from blocks.memory import parse_size


class DatasetWriter(ABC):
    """Base class of writers, which add data to a new dataset; the dataset gets its path once it is complete."""

    _is_open = True
    _has_failed = False  # whether an add() has failed: part of its data may have been added

    @abstractmethod
    def _finish(self) -> None:
        """Write all files that depend on all of the data, and the manifest."""

    def _require_no_failure(self) -> None:
        if self._has_failed:
            raise RequestError(
                "an earlier add() raised an error, and a part of its data may have been added",
                "Let the error end the `with` block: check data before calling add().",
            )


Writer = TypeVar("Writer", bound=DatasetWriter)
Add = TypeVar("Add", bound=Callable[..., None])


def adding(add: Add) -> Add:
    """Decorate a writer's method that adds data: refuse calls after the `with` block, or after a call that raised."""

    @wraps(add)
    def checked(writer: DatasetWriter, *args: Any, **options: Any) -> None:
        if not writer._is_open:
            raise RequestError(
                "the dataset is complete, and nothing can be added to it", "Call add() inside the `with` block."
            )
        writer._require_no_failure()
        try:
            add(writer, *args, **options)
        except BaseException:
            writer._has_failed = True
            raise

    return checked  # type: ignore[return-value]


@contextmanager
def streamed(out: str, overwrite: bool, opened: Callable[[Target], Writer]) -> Iterator[Writer]:
    """Publish a dataset at the end of the `with` block that adds its data; remove it if the block raises.

    opened: function that creates the writer, given the path where the dataset is written. Errors in the block are
    raised unchanged: errors of files that the block reads are not errors of the dataset's disk.
    """
    require_replaceable(Path(out), overwrite)
    try:
        with told_in_python(), new_dataset(out, overwrite) as target:
            writer = opened(target)
            try:
                yield writer
            except OSError as error:
                raise _OfTheBlock(error) from None
            finally:
                writer._is_open = False
            writer._require_no_failure()
            writer._finish()
    except _OfTheBlock as passed:
        raise passed.error from None


@contextmanager
def told_in_python() -> Iterator[None]:
    """Replace command-line options in messages by parameter names."""
    try:
        yield
    except RequestError as error:
        raise reworded(error, in_parameters) from None


class _OfTheBlock(Exception):
    """Carries an error raised in the block through the handler of disk errors."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def budget_of(memory: int | str | None) -> Budget:
    """Return the memory budget of a process that writes alone.

    memory: bytes, or a size such as "2GB"; None for a quarter of the free memory.
    """
    return Budget(parse_size(memory, "memory") if isinstance(memory, str) else memory, 1)
