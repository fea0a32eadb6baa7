"""Base class and context managers of writers, with which scripts write datasets piece by piece."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from blocks.append import DatasetTarget, new_dataset, require_replaceable
from blocks.errors import RequestError, in_parameters, reword_error
from blocks.ingestion.memory_budget import MemoryBudget
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
                "an earlier add() failed and may have added only a part of its data",
                "Write the dataset again, and do not catch errors of add() inside the `with` block.",
            )


Writer = TypeVar("Writer", bound=DatasetWriter)
Add = TypeVar("Add", bound=Callable[..., None])


def adds_data(add: Add) -> Add:
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
def incremental_dataset(out: str, overwrite: bool, opened: Callable[[DatasetTarget], Writer]) -> Iterator[Writer]:
    """Publish a dataset at the end of the `with` block that adds its data; remove it if the block raises.

    opened: function that creates the writer, given the path where the dataset is written. Errors in the block are
        raised unchanged: errors of files that the block reads are not errors of the dataset's disk.
    """
    require_replaceable(Path(out), overwrite)
    try:
        with options_as_parameters(), new_dataset(out, overwrite) as target:
            writer = opened(target)
            try:
                yield writer
            except OSError as error:
                raise _CallerError(error) from None
            finally:
                writer._is_open = False
            writer._require_no_failure()
            writer._finish()
    except _CallerError as passed:
        raise passed.error from None


@contextmanager
def options_as_parameters() -> Iterator[None]:
    """Replace command-line options in messages by parameter names."""
    try:
        yield
    except RequestError as error:
        raise reword_error(error, in_parameters) from None


class _CallerError(Exception):
    """Carries an error raised in the block through the handler of disk errors."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def writer_budget(memory: int | str | None) -> MemoryBudget:
    """Return the memory budget of a process that writes alone.

    memory: bytes, or a size such as "2GB"; None for a quarter of the free memory.
    """
    return MemoryBudget(parse_size(memory, "memory") if isinstance(memory, str) else memory, 1)
