"""A run directory: everything that training needs to continue, and the results.

config.json      program, options, dataset with its identity, number of iterations
options.toml     options of the command that started it, for `--config`
state/           generations of the local state, see `ooc.state.generations`; with --scratch in a directory there
slices/          sliced arrays of the program while it runs, if they do not fit in memory; with --scratch there
metrics.jsonl    one line for each iteration
log.txt          events with their times
model/           the result, once training is finished
previous/        model of the run that this run replaces, until it has its own
replaces         mark that the replaced run is kept, see `ooc.runs.earlier_run`
lock             held by the process that uses the run
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocks import stderr
from blocks.dataset_generations import has_generation, record_reference
from blocks.errors import OocError, RequestError, WorkFailed
from blocks.files import RemovedPath, disk_errors, file_identity, publish_file, remove_leftovers, remove_path
from blocks.json_files import read_json, require_fit, write_json
from blocks.stored_dataset import MANIFEST
from ooc.program import StaticProgram
from ooc.runs.dataset_entries import AnyStore, config_dataset_entries, dataset_location, moved_entry, open_dataset_entry
from ooc.runs.metrics import metrics_line, parse_metrics_line
from ooc.runs.replaced_run import MODEL, PREVIOUS, drop_previous
from ooc.runs.schemas import RunConfig
from ooc.runs.scratch import STATE, note_place, owns_scratch, remove_scratch, require_owned
from ooc.runs.start_command import OPTIONS
from ooc.state.generations import committed, committed_local_state
from ooc.state.slice_file import SLICES
from ooc.workers.worker import ProgramSpec

if TYPE_CHECKING:
    from ooc.dynamic.program import DynamicProgram

SCHEMA = 1
CONFIG = "config.json"
METRICS = "metrics.jsonl"
LOCK = "lock"
REPLACES = "replaces"
_NAMES = (CONFIG, OPTIONS, STATE, SLICES, METRICS, "log.txt", MODEL, PREVIOUS, REPLACES, LOCK)


class Run:
    """An existing run directory. Attributes: `path`, `config`; `is_new`, whether this process has just created it.

    program: "module:Class" of a user's program that the caller trusts. A run may come from someone else, so the program
        named in its configuration is only built if it is part of ooc or equals `program`.
    """

    def __init__(self, path: Path, program: str | None = None) -> None:
        self.path, self._trusted, self.is_new = path, program, False
        for name in _NAMES:
            if (path / name).is_symlink():
                raise RequestError(
                    f"{path / name} is a symbolic link, which is not followed for safety",
                    "Replace the link with the file or directory that it points to.",
                )
        self.config = read_json(path / CONFIG, what="a run made by `ooc train`", schema=SCHEMA, holds=RunConfig)
        self._lock: tuple[int, int] | None = None  # device and inode of the lock file while the lock is held
        self._dataset_at: tuple[Path, tuple[int, ...]] | None = (
            None  # path and `_version` of the dataset, once they have been checked
        )

    @property
    def scratch(self) -> Path:
        """Return the directory that contains state/ and slices/: the run directory, or a scratch directory that the run
        owns.

        Raises RequestError if the state was removed on request or belongs to another run, and WorkFailed if the scratch
        directory is missing.
        """
        if self.config["state_removed"]:
            raise RequestError(
                f"the state of {self.path} was removed with `ooc clean --state`",
                "Its model can still be used; to train further, train a new run.",
            )
        if not self.config["scratch"]:
            return self.path
        place = Path(self.config["scratch"])
        require_owned(place, self.path, self.config.get("id"))
        return place

    def set_finished(self) -> None:
        """Record that the planned iterations are done and the model is published."""
        self.require_in_place()
        self.config["finished"] = True
        write_json(self.path / CONFIG, self.config)
        drop_previous(self.path)

    @property
    def spec(self) -> ProgramSpec:
        """Return the program and its options.

        Raises RequestError if it is a user's program that the caller did not name.
        """
        spec = ProgramSpec(self.config["program"], self.config["options"])
        if spec.target != self._trusted and not spec.is_known:
            raise RequestError(
                f"{self.path} needs the program {spec.target}, which is not part of ooc",
                f"If you trust its code, run: {self.how_to_resume}",
            )
        return spec

    @property
    def how_to_resume(self) -> str:
        """Return the command that resumes the run."""
        spec = ProgramSpec(self.config["program"], {})
        return f"ooc resume {self.path}{'' if spec.is_known else f' --program {spec.target}'}"

    def warn_of_changed_program(self) -> None:
        """Warn on standard error and in log.txt if the file of a user's program, or a file that it imports, has changed
        since the run was started."""
        noted = self.config.get("program_source")
        if noted is not None and noted != self.spec.source_checksum():
            warning = f"the source files of {self.config['program']} have changed since {self.path} was started"
            stderr.print_warning(warning)
            self.log(warning)

    def require_same_state(self, program: StaticProgram | DynamicProgram) -> None:
        """Raise RequestError if the committed state does not fit a user's program that has been changed.

        Without this check, the engine would take the mismatch for damage and drop the newest generation.
        """
        entries = [] if self.spec.is_known else committed(self.scratch / STATE)
        if not entries:
            return
        specs, local = program.shared_arrays(), program.local_state()
        now = {name: _size(math.prod(specs[name].shape), specs[name].dtype) for name in program.primary_arrays()}
        arrays = entries[0]["arrays"]["arrays"].items()
        then = {name: _size(size, dtype) for name, (_, dtype, size) in arrays if not name.startswith("rounds.")}
        if found := committed_local_state(self.scratch / STATE):
            now["local_state"], then["local_state"] = _size(local.width, local.dtype), _size(found.width, found.dtype)
        names = {*now} if "staleness" in self.config["settings"] else {*now, *then}  # a ring keeps additional arrays
        for name in sorted(names):
            if now.get(name) != then.get(name):
                raise RequestError(
                    f"{self.path}: {self.config['program']} has changed: {name!r} is "
                    f"{then.get(name, 'absent')} in the run, but {now.get(name, 'absent')} in the program",
                    "Restore the original program, or train a new run.",
                )

    def dataset(self, opened: Callable[[Path], AnyStore]) -> AnyStore:
        """Return the dataset of the run.

        opened: function that opens a dataset of this kind.
        Raises RequestError if the dataset was replaced by another one.
        """
        name = f"the dataset on which {self.path} was started"
        return open_dataset_entry(self.config["dataset"], self.path, "data", name, opened)

    def held_out(self, opened: Callable[[Path], AnyStore]) -> AnyStore | None:
        """Return the held-out dataset, or None.

        opened: function that opens a dataset of this kind.
        """
        entry = self.config["settings"].get("held_out")
        name = f"the held-out dataset of {self.path}"
        return open_dataset_entry(entry, self.path, "held-out", name, opened) if entry else None

    @property
    def dataset_path(self) -> Path:
        """Return the path of the dataset, or its last known path."""
        return dataset_location(self.config["dataset"], self.path)

    def move_datasets(self, data: Path | None, held_out: Path | None) -> None:
        """Record new paths of the datasets, None for unchanged ones.

        Raises RequestError if other datasets are at these paths.
        """
        settings, self._dataset_at = self.config["settings"], None
        before = list(config_dataset_entries(self.config))
        if data:
            self.config["dataset"] = moved_entry(self.config["dataset"], self.path, data)
        if held_out:
            if not settings.get("held_out"):
                raise RequestError(f"--held-out {held_out}: {self.path} has no held-out dataset", "Omit --held-out.")
            settings["held_out"] = moved_entry(settings["held_out"], self.path, held_out)
        if before != config_dataset_entries(self.config):
            write_json(self.path / CONFIG, self.config)

    def set_iterations(self, iterations: int) -> None:
        """Change the number of iterations. Training then continues even if it had converged."""
        lines = self.metrics()
        if lines and lines[-1].get("converged"):
            self.config["extended_at"] = lines[-1]["iteration"]
        self.config["iterations"] = iterations
        self.config["finished"] = False
        write_json(self.path / CONFIG, self.config)

    @contextmanager
    def locked(self) -> Iterator[list[RemovedPath]]:
        """Hold the lock of the run; see the function `run_lock`."""
        with run_lock(self.path) as removed:
            self._lock = file_identity(self.path / LOCK)
            for place in scratch_directories(self.path):
                note_place(place, self.path, self.config["id"])
            self.refer_to_datasets()
            try:
                yield removed
            finally:
                self._lock = None

    def require_in_place(self) -> None:
        """Raise WorkFailed if the run or its dataset has been removed or replaced since the run was locked.

        Called before anything is written, as another run may now be at this path.
        """
        if self._lock and file_identity(self.path / LOCK) != self._lock:
            raise WorkFailed(
                f"{self.path} was removed, moved or replaced while this command used it",
                "The files that are there now were left as they are. Check them with `ooc info`, or train a new run.",
            )
        if self._dataset_at and _version(self._dataset_at[0] / MANIFEST) == self._dataset_at[1]:
            return  # finding its path means reading its manifest: milliseconds for each hundred files
        entry, path = self.config["dataset"], self.dataset_path
        found = _version(path / MANIFEST)
        if not found or not has_generation(path, entry["identity"]):
            raise WorkFailed(
                f"{path}, the dataset of {self.path}, was {'recreated' if found else 'removed or moved'}",
                f"Put the dataset back, then continue with `ooc resume {self.path}`; or train a new run.",
            )
        self._dataset_at = path, found

    def refer_to_datasets(self) -> None:
        """Record in the datasets that this run needs the dataset generation with which it started."""
        for entry in config_dataset_entries(self.config):
            if "id" in self.config and not self.config["state_removed"]:
                record_reference(dataset_location(entry, self.path), entry["identity"], self.path, self.config["id"])

    def settings(self, holds: Any) -> dict[str, Any]:
        """Return the settings of the observer.

        Raises WorkFailed if they do not match `holds`, a TypedDict.
        """
        require_fit(self.path / CONFIG, self.config["settings"], holds)
        return self.config["settings"]

    def remove_state(self) -> list[RemovedPath]:
        """Delete the state and the scratch directory. The run must be locked, and cannot be continued afterwards."""
        places, state = scratch_directories(self.path), self.path / STATE
        self.config["state_removed"] = True
        write_json(self.path / CONFIG, self.config)
        removed = [remove_path(state)] if state.exists() else []
        return removed + [gone for place in places for gone in remove_scratch(place)]

    def remove_if_new(self) -> None:
        """Delete a new run that has nothing committed, nor the model of a replaced run. The run must be locked."""
        if self.is_new and not (self.path / PREVIOUS).exists() and not committed(self.scratch / STATE):
            self.require_in_place()
            for place in scratch_directories(self.path):
                remove_scratch(place)
            remove_path(self.path)

    def log(self, message: str) -> None:
        """Add a line to log.txt."""
        with disk_errors(self.path), (self.path / "log.txt").open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {message}\n")

    def log_in_place(self, message: str) -> None:
        """Add a line to log.txt; raises WorkFailed if the run was removed or replaced."""
        self.require_in_place()
        self.log(message)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the lines of metrics.jsonl. An incomplete last line is skipped; damaged lines are skipped with a
        warning."""
        found, damaged = self.read_metrics()
        for number in damaged:
            stderr.print_warning(f"{self.path / METRICS}, line {number} is damaged and ignored")
        return found

    def read_metrics(self) -> tuple[list[dict[str, Any]], list[int]]:
        """Return the valid lines of metrics.jsonl, and the line numbers of damaged ones."""
        path, found, damaged = self.path / METRICS, [], []
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                continue
            values = parse_metrics_line(line)
            if values is not None:
                found.append(values)
            else:
                damaged.append(number)
        return found, damaged

    def last_metrics(self) -> dict[str, Any]:
        """Return the last line of metrics.jsonl; if there is none, the fields that every line has, with value 0."""
        return [{"iteration": 0, "elapsed_s": 0.0, "memory_bytes": 0}, *self.metrics()][-1]

    def keep_metrics(self, iterations: int) -> None:
        """Drop the lines of iterations after `iterations`, which were not committed and will be repeated."""
        self.require_in_place()
        kept = [line for line in self.metrics() if line["iteration"] <= iterations]
        with publish_file(self.path / METRICS) as beside:
            beside.write_text("".join(map(metrics_line, kept)), encoding="utf-8")

    def add_metrics(self, line: dict[str, Any]) -> dict[str, Any]:
        """Append a line to metrics.jsonl; returns the line with the current time added."""
        self.require_in_place()
        line = {**line, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        with disk_errors(self.path), (self.path / METRICS).open("a", encoding="utf-8") as file:
            file.write(metrics_line(line))
        return line

    def sync_metrics(self) -> None:
        """Flush metrics and log to disk before the state that they describe is committed."""
        self.require_in_place()
        for name in (METRICS, "log.txt"):
            path = self.path / name
            with disk_errors(path), path.open("ab") as file:
                os.fsync(file.fileno())


def _size(numbers: int, dtype: Any) -> str:
    return f"{numbers:,} {np.dtype(dtype)}"


class RunInUse(RequestError):
    """Raised when another process is using the run."""


@contextmanager
def run_lock(path: Path) -> Iterator[list[RemovedPath]]:
    """Hold the lock of a run directory; yields the leftovers of killed processes, which have been deleted.

    Raises RunInUse if another process holds the lock. The lock of a killed process is released.
    """
    with disk_errors(path):
        descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode() or "unknown"
            raise RunInUse(
                f"{path} is in use by process {holder}", "Wait until the process has ended, or stop it."
            ) from None
        if file_identity(descriptor) != file_identity(path / LOCK):
            raise RequestError(
                f"{path} was just removed or replaced by another process",
                "Check the run with `ooc info`, then try again.",
            )
        with disk_errors(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        slices = [place / SLICES for place in (path, *scratch_directories(path))]
        yield remove_leftovers(path) + [remove_path(place) for place in slices if place.exists()]
    finally:
        os.close(descriptor)


def _version(path: Path) -> tuple[int, ...] | None:
    """Return a tuple that changes if a file is replaced; None if there is no file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def scratch_directories(path: Path, before: Path | None = None) -> list[Path]:
    """Return the scratch directories that a run, or each of several chains, owns. before: its path if it was moved."""
    places = []
    for file in (*path.glob(CONFIG), *path.glob(f"*/{CONFIG}")):
        with suppress(OocError):  # damaged configurations are reported when they are read
            config = Run(file.parent).config
            owner = (before or path) / file.parent.relative_to(path)
            if config["scratch"] and owns_scratch(Path(config["scratch"]), owner, config.get("id")):
                places.append(Path(config["scratch"]))
    return places
