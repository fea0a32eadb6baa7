"""End commands suddenly: python tests/sudden_ends.py power|kill DIRECTORY ENDS SEED [TRIAL ...], ENDS times each.

power   A file system in a file is shut down without anything being flushed (EXT4_IOC_SHUTDOWN), at a random moment of a
        command that writes to it; then it is mounted again, as after the power is back. Run as root, in a mount
        namespace.
kill    SIGKILL ends the process group of a command: at a random one of its calls that change files, every fourth time
        at a random moment. Run with `failing_disk.c` and `hurrying_clock.c` loaded (LD_PRELOAD).

What the command had said was done has to be there; `ooc verify` is content or says what to do; the command, or `ooc
resume`, then makes the files of a command that nothing ended; `ooc clean` finds all that was left. Prints a JSON
object: how often each command was tried, how often it was ended before it was done, and what was lost.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from corpora import tree
from unplugged_disk import LoopbackDisk, OocProcess

RATE = 1000  # of the clock by which a run that is killed commits
ONE = "--workers 1"
LDA = f"--topics 3 --sampler two-phase {ONE} --evaluate-every 40"
FACTORS = f"--rank 4 {ONE} --iterations 60"
PATH = f"--path 40 {ONE}"
PREPARED = {
    "topics": [
        f"ingest jsonl texts.jsonl corpus {ONE}",
        f"train lda corpus run {LDA} --iterations 40 --seed 7",
    ],
    "remains": [
        f"ingest jsonl texts.jsonl corpus {ONE}",
        f"ingest jsonl texts.jsonl damaged {ONE}",
        f"train lda corpus dirty/done {LDA} --iterations 9",
        f"train lda corpus dirty/other {LDA} --iterations 9",
    ],
    "ratings": ["ingest ratings ratings.csv ratings"],
    "designs": [
        f"ingest csv squared.csv squared --target y {ONE}",
        f"ingest csv logistic.csv logistic --target y {ONE}",
        f"train lasso squared path {PATH}",
    ],
}


class KilledCommand(NamedTuple):
    """A command with the key of its PREPARED starting point, its result, and the command that repeats it."""

    data: str
    command: str
    made: str  # pattern of the files and directories
    again: str = ""  # the command, if empty
    resumed: str = ""  # run that `ooc resume` goes on with, if the end left the new one


TRIALS = {
    "ingest": KilledCommand("topics", f"ingest jsonl texts.jsonl new {ONE}", "new"),
    "append": KilledCommand("topics", f"ingest jsonl more.jsonl corpus --append --skip-known {ONE}", "corpus"),
    "train": KilledCommand("topics", f"train lda corpus new {LDA} --iterations 200", "new/model", resumed="new"),
    "chains": KilledCommand(
        "topics",
        f"train lda corpus new {LDA} --iterations 80 --chains 2 --evaluate-every 8",
        "new/*/model",
        resumed="new",
    ),
    "resume": KilledCommand("topics", f"resume run --iterations 240 {ONE}", "run/model"),
    "overwrite": KilledCommand(
        "topics", f"train lda corpus run {LDA} --iterations 200 --seed 8 --overwrite", "run/model", resumed="run"
    ),
    "mf": KilledCommand("ratings", f"train mf ratings new {FACTORS}", "new/model", resumed="new"),
    "lasso": KilledCommand("designs", f"train lasso squared new {PATH}", "new/model", resumed="new"),
    "logistic": KilledCommand("designs", f"train logistic logistic new {PATH}", "new/model", resumed="new"),
    "infer": KilledCommand("topics", f"infer run corpus new.npz {ONE}", "new.npz"),
    "npz": KilledCommand("topics", "export run new.npz --format npz", "new.npz"),
    "mallet": KilledCommand("topics", "export run new --format mallet", "new"),
    "gensim": KilledCommand("topics", "export run new --format gensim", "new"),
    "parquet": KilledCommand("topics", "export run new --format parquet", "new"),
    "predict": KilledCommand("designs", "predict path squared new.csv", "new.csv"),
    "shard": KilledCommand("topics", f"shard corpus new --shards 2 {ONE}", "new"),
    "repair": KilledCommand("remains", "verify damaged --repair", "damaged"),
    "clean": KilledCommand("remains", "clean dirty --state", "dirty"),
}


def ended(place: Path, command: str) -> tuple[int, str]:
    """Return the exit code of a command and its standard error."""
    process = OocProcess(place, command)
    code = process.wait()
    process.end()
    assert code is not None
    return code, re.sub(r"^compiling kernels;.*\n", "", process.message, flags=re.MULTILINE)


def problem(place: Path, command: str) -> str:
    """Return the message of a command that should succeed but fails; "" if it succeeds."""
    code, message = ended(place, command)
    return "" if code == 0 else f"{command}: {code}: {message}"


class KillDirectory:
    """Directory in which commands are killed."""

    counts = True

    def __init__(self, directory: Path) -> None:
        self.before, self.place = directory / "before", directory / "place"
        self.place.mkdir(parents=True)

    def release(self) -> None:
        shutil.rmtree(self.place)

    def keep(self) -> None:
        self.place.rename(self.before)

    def restore(self) -> None:
        subprocess.run(["cp", "-a", self.before, self.place], check=True)

    def end(self, process: OocProcess) -> None:
        process.kill()
        process.end()


class FileCalls:
    """Calls of commands that change files below a directory, as counted by `failing_disk.c`."""

    def __init__(self, below: Path, counter: Path) -> None:
        self._counter = counter
        self._environment = {"FAILING_BELOW": str(below), "FAILING_COUNTER": str(counter), "FAILING_KILL": "yes"}

    def command(self, place: Path, command: str, kill_at: int = 0) -> OocProcess:
        """Start a command that is killed at its n-th call, counted from 1; 0 for no kill."""
        self._counter.write_bytes(b"")
        os.environ.update(self._environment | {"FAILING_FROM": str(kill_at), "CLOCK_RATE": str(RATE)})
        try:
            return OocProcess(place, command)
        finally:
            for name in (*self._environment, "FAILING_FROM", "CLOCK_RATE"):
                del os.environ[name]

    def number(self) -> int:
        return self._counter.stat().st_size


def content(place: Path, pattern: str) -> dict[str, bytes]:
    """Return all files that match a pattern, except locks, logs and the notes of runs in datasets.

    Of gensim's pickles only the names are compared, because their bytes differ each time.
    """
    found = {}
    for path in place.glob(pattern):
        found |= {f"{path.name}/{name}": data for name, data in (tree(path) if path.is_dir() else {}).items()}
        found |= {} if path.is_dir() else {path.name: path.read_bytes()}
    found = {name: data for name, data in found.items() if not re.search(r"(/lock|/log\.txt|/runs/.*)$", name)}
    pickled = {name: b"" for name in found if re.search(r"/lda\.model(\.state)?$", name)}
    return found | pickled


def names(place: Path) -> list[str]:
    """Return the names of all files and directories, without the ids of runs, and without the generations that a
    state's manifest names.
    """
    known = {""}
    for manifest in place.rglob("state/manifest.json"):
        entries = json.loads(manifest.read_text())
        for entry in filter(None, (entries["newest"], entries["before"])):
            known |= {str(manifest.parent / f"{entry['generation']:06}{kind}") for kind in (".cells", ".h5", ".json")}
    found = [path for path in place.rglob("*") if str(path) not in known]
    return sorted(re.sub(r"runs/\w+", "runs/ID", str(path.relative_to(place))) for path in found)


def distrusts(place: Path) -> str:
    """Return the problems that `ooc verify` reports for the datasets and runs in a directory."""
    marks = ("manifest.json", "config.json", "chains.json", "shard-0")
    for path in sorted(path for path in place.glob("[!.]*") if any((path / mark).exists() for mark in marks)):
        code, message = ended(place, f"verify {path.name}")
        lines = message.splitlines()
        if code not in (0, 1) or (code and len(lines) < 2) or re.search("Traceback|bug in ooc", message):
            return f"verify {path.name}: {code}: {message}"
    return ""


class CompletedCommand(NamedTuple):
    """An undisturbed command: its result, the names left after `ooc clean`, its number of calls and its seconds."""

    old: dict[str, bytes]
    made: dict[str, bytes]
    left: list[str]
    calls: int
    seconds: float


def undisturbed(where: LoopbackDisk | KillDirectory, trial: KilledCommand, calls: FileCalls) -> CompletedCommand:
    where.restore()
    old, began = content(where.place, trial.made), time.monotonic()
    process = calls.command(where.place, trial.command)
    code, seconds = process.wait(), time.monotonic() - began
    process.end()
    if code:
        raise RuntimeError(f"{trial.command}: {code}: {process.message}")
    made, number = content(where.place, trial.made), calls.number()
    if trouble := problem(where.place, "clean ."):
        raise RuntimeError(trouble)
    assert content(where.place, trial.made) == made != old
    left = names(where.place)
    where.release()
    return CompletedCommand(old, made, left, number, seconds)


def is_new(place: Path, trial: KilledCommand) -> bool:
    """Return whether the command has begun a run."""
    for file in (place / trial.resumed / "config.json", place / trial.resumed / "chains.json"):
        if trial.resumed and file.exists():
            options = json.loads(file.read_text()).get("options", {})
            return "--overwrite" not in trial.command or options["seed"] == 8
    return False


def let_a_minute_pass(place: Path) -> None:
    """Set times back by a minute, because a file without a lock counts as a leftover only after that time."""
    for leftover in place.rglob("*.unlocked"):
        os.utime(leftover, (0, 0))


def done_again(place: Path, trial: KilledCommand, expected: CompletedCommand) -> str:
    """Repeat an ended command; returns the problems."""
    if is_new(place, trial):
        return problem(place, f"resume {trial.resumed} {ONE}")
    if content(place, trial.made) == expected.made and "--skip-known" not in trial.command:
        return ""
    return problem(place, trial.again or trial.command)


def lost(  # noqa: PLR0911
    place: Path, trial: KilledCommand, code: int | None, expected: CompletedCommand, cleans: bool
) -> str:
    """Return the problems after a command was ended.

    cleans: whether to run `ooc clean` before the command is repeated.
    """
    if code == 0 and content(place, trial.made) != expected.made:
        return "it had said that it was done, and that is lost"
    if trial.made == "run/model" and (trouble := problem(place, "topics run")):
        return f"neither the old model nor the new one is there: {trouble}"
    if trouble := distrusts(place):
        return trouble
    let_a_minute_pass(place)
    if cleans and (trouble := problem(place, "clean .")):
        return trouble
    if trouble := (code != 0 and done_again(place, trial, expected)) or problem(place, "clean ."):
        return trouble
    if (made := content(place, trial.made)) != expected.made:
        other = sorted(name for name in made.keys() | expected.made.keys() if made.get(name) != expected.made.get(name))
        return f"done again, it comes to something else: {other}"
    if left := sorted(set(names(place)) ^ set(expected.left)):
        return f"`ooc clean` leaves, or has deleted, {left}"
    return distrusts(place)


def try_command(
    where: LoopbackDisk | KillDirectory, name: str, ends: int, draw: random.Random, calls: FileCalls
) -> dict:
    """End a command a number of times."""
    trial, found, before = TRIALS[name], [], 0
    expected = undisturbed(where, trial, calls)
    for turn in range(ends):
        where.restore()
        moment, call = draw.uniform(0.0, 1.2 * expected.seconds), draw.randint(1, max(expected.calls, 1))
        at_call = where.counts and turn % 4 < 3
        process = calls.command(where.place, trial.command, call if at_call else 0)
        code = process.wait(None if at_call else moment)
        where.end(process)
        before += code != 0
        when = f"call {call} of {expected.calls}" if at_call else f"{moment:.3f} s of {expected.seconds:.3f}"
        if trouble := lost(where.place, trial, code, expected, cleans=draw.random() < 0.5):
            found.append(f"{name}, ended at {when}, returned {code}: {trouble}")
        elif left := list(where.temporary.iterdir()):
            found.append(f"{name}, ended at {when}, left {left}")
        where.release()
    print(f"{name}: {ends} tried, {before} before it was done, {ends - len(found)} survived", file=sys.stderr)
    return {"tried": ends, "before it was done": before, "survived": ends - len(found), "lost": found}


def write_inputs(place: Path, draw: random.Random) -> None:
    words = ["apple", "pear", "plum", "fruit", "goal", "team", "ball", "match"]
    for name, count in (("texts", 300), ("more", 100)):
        lines = [{"id": f"{name}{line}", "text": " ".join(draw.choices(words, k=20))} for line in range(count)]
        (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pairs = [(user, item) for user in range(60) for item in draw.sample(range(40), 12)]
    (place / "ratings.csv").write_text("".join(f"u{user},i{item},{draw.randint(1, 5)}\n" for user, item in pairs))
    for name in ("squared", "logistic"):
        lines = ["y," + ",".join(f"x{column}" for column in range(12))]
        for _ in range(120):
            row = [draw.gauss(0, 1) for _ in range(12)]
            y = 2 * row[0] - row[3] + 0.3 * row[5] + draw.gauss(0, 0.3)
            lines.append(",".join(map(str, [y if name == "squared" else int(y > 0), *row])))
        (place / f"{name}.csv").write_text("\n".join(lines) + "\n")


def prepare(place: Path, data: str) -> None:
    """Create the starting points of the trials."""
    write_inputs(place, random.Random(1))
    for command in PREPARED[data]:
        if trouble := problem(place, command):
            raise RuntimeError(trouble)
    if data == "remains":
        for slice_ in (place / "damaged" / "slices").iterdir():
            slice_.unlink()
        shutil.copytree(place / "corpus", place / "dirty" / "corpus")
        for stray in ("corpus/blocks/00099.h5", "corpus/.spill.partial-01234567/x", ".new.partial-01234567"):
            (place / "dirty" / stray).parent.mkdir(exist_ok=True)
            (place / "dirty" / stray).write_bytes(b"left over")


def main(how: str, root: str, ends: str, seed: str, *only: str) -> None:
    draw, told = random.Random(int(seed)), {}
    chosen = [name for name in TRIALS if not only or name in only]
    for data in dict.fromkeys(TRIALS[name].data for name in chosen):
        where = {"power": LoopbackDisk, "kill": KillDirectory}[how](Path(root, data))
        where.temporary = Path(root, data, "temporary")
        where.temporary.mkdir()
        os.environ["TMPDIR"] = str(where.temporary)
        calls = FileCalls(where.place, Path(root, data, "calls"))
        prepare(where.place, data)
        where.keep()
        for name in chosen:
            if TRIALS[name].data == data:
                told[name] = try_command(where, name, int(ends), draw, calls)
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
