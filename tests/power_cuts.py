"""Cut the power under commands: python tests/power_cuts.py DIRECTORY CUTS SEED, as root, in a mount namespace.

A file system in a file is shut down without anything being flushed (EXT4_IOC_SHUTDOWN), at a random moment of a command
that writes to it; then it is mounted again, as after the power is back. What the command had said was done has to be
there; of what it had not, nothing may be in the way of doing it again. Prints a JSON object: how many cuts there were,
of each command, and what was lost.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from corpora import tree

SHUTDOWN, WITHOUT_FLUSHING = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
SIZE = 100_000_000
LDA = "--topics 3 --sampler two-phase --workers 1 --seed 7 --evaluate-every 40 --iterations 40"
PREPARED = ["ingest jsonl texts.jsonl corpus", f"train lda corpus run {LDA}"]


class Trial(NamedTuple):
    """A command, what does it again after a cut, and what it makes."""

    command: str
    again: str
    made: str
    continued: str = ""  # what does it where the cut has left a run


TRIALS = {
    "ingest": Trial("ingest jsonl texts.jsonl new", "ingest jsonl texts.jsonl new", "new"),
    "append": Trial("ingest jsonl more.jsonl corpus --append", "ingest jsonl more.jsonl corpus --append", "corpus"),
    "train": Trial(f"train lda corpus other {LDA}", f"train lda corpus other {LDA}", "other/model", "resume other"),
    "overwrite": Trial(f"train lda corpus run {LDA} --overwrite", "", "run/model", "resume run"),
    "infer": Trial("infer run corpus mixtures.npz", "infer run corpus mixtures.npz --overwrite", "mixtures.npz"),
    "export": Trial("export run out.npz --format npz", "export run out.npz --format npz --overwrite", "out.npz"),
    "mallet": Trial("export run mallet --format mallet", "export run mallet --format mallet --overwrite", "mallet"),
    "shard": Trial("shard corpus shards --shards 2", "shard corpus shards --shards 2", "shards"),
}


def ooc(place: Path, command: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "cli", *command.split(), "--quiet"]
    return subprocess.Popen(
        words, cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True
    )


def finished(place: Path, command: str) -> str:
    """What a command that has to succeed says if it does not."""
    process = ooc(place, command)
    message = process.communicate()[1]
    return "" if process.returncode == 0 else f"{command}: {process.returncode}: {message}"


def copy(source: Path, target: Path) -> None:
    """Without writing what is empty."""
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


class Disk:
    """A file system in a file, and where it is mounted."""

    def __init__(self, directory: Path) -> None:
        self.image, self.before, self.place = directory / "image", directory / "before", directory / "mount"
        self.place.mkdir()
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True)

    def mount(self) -> None:
        options = "loop,data=writeback,commit=600"  # nothing reaches the disk by itself
        subprocess.run(["mount", "-o", options, self.image, self.place], check=True)

    def restore(self) -> None:
        """Mount it as it was before the commands that are cut."""
        copy(self.before, self.image)
        self.mount()

    def unmount(self) -> None:
        subprocess.run(["umount", self.place], check=True)

    def cut(self) -> None:
        descriptor = os.open(self.place, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
        os.close(descriptor)


def content(path: Path) -> dict[str, bytes]:
    return tree(path) if path.is_dir() else {"": path.read_bytes()} if path.exists() else {}


def cut_under(disk: Disk, trial: Trial, delay: float) -> int | None:
    """Cut the power so many seconds after a command has begun; what it has returned by then."""
    process = ooc(disk.place, trial.command)
    try:
        code = process.wait(delay)
    except subprocess.TimeoutExpired:
        code = None
    disk.cut()
    if code is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    disk.unmount()
    disk.mount()
    return code


def lost(disk: Disk, trial: Trial, code: int | None, expected: dict[str, bytes], old: dict[str, bytes]) -> str:
    """What is wrong once the power is back."""
    made = disk.place / trial.made
    if code == 0 and content(made) != expected:
        return "it had said that it was done, and that is lost"
    if trial.made == "run/model" and (problem := finished(disk.place, "topics run")):
        return f"neither the old model nor the new one is there: {problem}"
    run = disk.place / Path(trial.made).parts[0]
    again = trial.continued if trial.continued and (run / "config.json").exists() else trial.again
    if trial.made == "corpus" and content(made) != old:
        if problem := finished(disk.place, "verify corpus"):
            return problem
        again = "" if json.loads((made / "manifest.json").read_text())["generation"] else again
    outstanding = again and code != 0 and (again == trial.continued or content(made) != expected)
    if outstanding and (problem := finished(disk.place, again)):
        return problem
    return "" if content(made) == expected else "done again, it comes to something else"


def try_command(disk: Disk, name: str, cuts: int, draw: random.Random) -> list[str]:
    trial = TRIALS[name]
    disk.restore()
    old, began = content(disk.place / trial.made), time.monotonic()
    if problem := finished(disk.place, trial.command):
        raise RuntimeError(problem)
    length, expected = time.monotonic() - began, content(disk.place / trial.made)
    disk.unmount()
    found = []
    for _ in range(cuts):
        disk.restore()
        delay = draw.uniform(0.2 * length, 1.2 * length)  # before that it has not begun
        code = cut_under(disk, trial, delay)
        if problem := lost(disk, trial, code, expected, old):
            found.append(f"{name}, cut after {delay:.2f} s of {length:.2f}, returned {code}: {problem}")
        disk.unmount()
    return found


def main(directory: str, cuts: str, seed: str) -> None:
    disk, draw = Disk(Path(directory)), random.Random(int(seed))
    disk.mount()
    words = ["apple", "pear", "plum", "fruit", "goal", "team", "ball", "match"]
    for name, count in (("texts", 300), ("more", 100)):
        lines = [{"id": f"{name}{line}", "text": " ".join(draw.choices(words, k=20))} for line in range(count)]
        (disk.place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for command in PREPARED:
        if problem := finished(disk.place, command):
            raise RuntimeError(problem)
    disk.unmount()
    copy(disk.image, disk.before)
    found = {name: try_command(disk, name, int(cuts), draw) for name in TRIALS}
    print(
        json.dumps(
            {"cuts": {name: int(cuts) for name in TRIALS}, "lost": [each for some in found.values() for each in some]}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
