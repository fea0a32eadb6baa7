"""All that commands write gets its name in one way: written beside under a temporary name, made durable, renamed.

The calls of a command and of its workers are traced at the C library (tests/trace_files.c), so that files of HDF5 and
pyarrow are seen as well as those of Python.
"""

from __future__ import annotations

import ast
import fnmatch
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from long_mark import long_but
from processes import children, until

from blocks.files import TEMPORARY

ROOT = Path(__file__).parent.parent
LDA = "--topics 3 --iterations 2 --workers 1 --sampler gibbs"
# What training changes in place is no result: cells of a generation, which its manifest, published, names and seals;
# and lines that are added, which a resume cuts back to what was committed.
STATE = ("*/lock", "*/log.txt", "*/metrics.jsonl", "*/state/*.cells")
COMMANDS = {
    "ingest text": "ingest text --lines texts.txt new --workers 1",
    "ingest ratings": "ingest ratings ratings.csv new --workers 1",
    "ingest svmlight": "ingest svmlight in.svm new --workers 1",
    "ingest rows": "ingest svmlight in.svm new --by-rows",
    "append": "ingest text --lines more.txt corpus --append --workers 1",
    "train lda": f"train lda corpus new {LDA}",
    "train mf": "train mf ratings new --rank 3 --method als --iterations 2 --workers 1",
    "train lasso": "train lasso design new --path 3 --workers 1",
    "resume": "resume run --iterations 3 --workers 1",
    "infer": "infer run corpus new.csv --workers 1",
    "infer npz": "infer run corpus new.npz --workers 1",
    "shard": "shard corpus new --shards 2 --workers 1",
    "report": "report run -o new.html",
    "curves": "curves run -o new.svg",
    "import": "import mallet mallet/state.gz new",
    "repair": "verify --repair damaged",
    **{f"export {name}": f"export run new --format {name}" for name in ("npz", "scipy", "parquet", "pyldavis")},
    **{f"export {name}": f"export run new --format {name}" for name in ("gensim", "mallet", "tomotopy")},
    "export word2vec": "export factors new --format word2vec",
    **{f"mixtures {ending}": f"export run new.{ending} --format mixtures" for ending in ("npz", "csv", "parquet")},
}
NEEDS = {"export parquet": "pyarrow", "mixtures parquet": "pyarrow", "curves": "matplotlib"}
NEEDS |= {f"export {name}": name for name in ("gensim", "tomotopy")}


@pytest.fixture(scope="module")
def library(preloaded: Callable[[str], Path]) -> Path:
    return preloaded("trace_files")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, ooc_in) -> Path:
    """A directory with what the commands begin from; what they make is not in each other's way."""
    path = tmp_path_factory.mktemp("publishing")
    (path / "texts.txt").write_text("apple pear plum apple fig\nball goal team ball match\n" * 50)
    (path / "more.txt").write_text("apple pear team\n" * 30)
    (path / "in.svm").write_text("".join(f"{row % 2} {row % 7 + 1}:1.5 {row % 5 + 9}:2\n" for row in range(60)))
    lines = (f"u{number % 30},i{number * 7 % 20},{number % 5 + 1}\n" for number in range(300))
    (path / "ratings.csv").write_text("".join(["userId,movieId,rating\n", *lines]))
    for command in (
        *(f"ingest text --lines texts.txt {name} --workers 1" for name in ("corpus", "damaged")),
        "ingest ratings ratings.csv ratings --workers 1",
        "ingest svmlight in.svm design --workers 1",
        f"train lda corpus run {LDA}",
        "train mf ratings factors --rank 3 --method als --iterations 2 --workers 1",
        "export run mallet --format mallet",
    ):
        done = ooc_in(path)(*command.split())
        assert done.returncode == 0, done.stderr
    (path / "damaged" / "slices" / "00000.h5").unlink()
    return path


def is_temporary(path: str) -> bool:
    return any(TEMPORARY in name for name in Path(path).parts)


def files_of(place: Path) -> dict[str, tuple[int, int]]:
    """The files below a directory, with what changes when they are written or replaced."""
    found = {str(path): path.stat() for path in place.rglob("*") if path.is_file()}
    return {path: (status.st_ino, status.st_mtime_ns) for path, status in found.items()}


class NameTrace:
    """What became of names: `durable`, files whose content was made durable since they were last opened to be written.

    published: the final names that a rename gave. problems: what was done in another way.
    """

    def __init__(self, lines: list[str], below: Path) -> None:
        self.durable: set[str] = set()
        self.written: set[str] = set()
        self.published: set[str] = set()
        self.problems: list[str] = []
        for line in lines:
            what, path, new = line.split("\t")
            if (new or path).startswith(str(below)):
                self._take(what, path, new)

    def _take(self, what: str, path: str, new: str) -> None:
        if what in "WD":
            self.durable.discard(path)
            self.written.add(path)
            if what == "W" and not is_temporary(path) and not any(fnmatch.fnmatch(path, known) for known in STATE):
                self.problems.append(f"{path} was written under its final name")
        elif what == "S":
            self.durable.add(path)
        elif is_temporary(new) or any(fnmatch.fnmatch(new, known) for known in STATE):
            self._move(path, new)
        else:
            if not is_temporary(path):
                self.problems.append(f"{new} was made of {path}, which has no temporary name")
            inside = {file for file in self.written if file == path or file.startswith(f"{path}/")} - self.durable
            there = [file for file in sorted(inside) if Path(new + file[len(path) :]).exists()]  # others were deleted
            self.problems += [f"{file} was published as {new}, not durable" for file in there]
            self._move(path, new)
            self.published.add(new)

    def _move(self, old: str, new: str) -> None:
        for names in (self.durable, self.written):
            moved = {name for name in names if name == old or name.startswith(f"{old}/")}
            names.difference_update(moved)
            names.update(new + name[len(old) :] for name in moved)


REPEAT = {"ingest rows", "infer npz", "curves", "export scipy", "export parquet", "export pyldavis", "export gensim"}
REPEAT |= {"export tomotopy", "export word2vec", "mixtures npz", "mixtures parquet"}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", long_but(COMMANDS.keys() - REPEAT, COMMANDS))
def test_every_final_name_is_published(place: Path, library: Path, tmp_path: Path, name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    made = f"{name.replace(' ', '-')}-new"
    words = [word.replace("new", made, 1) if word.startswith("new") else word for word in COMMANDS[name].split()]
    before = files_of(place)
    log = tmp_path / "log"
    log.touch()
    environment = {**os.environ, "LD_PRELOAD": str(library), "TRACE_LOG": str(log)}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "ooc", *words],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trace = NameTrace(log.read_text().splitlines(), place)
    assert trace.problems == []
    changed = [path for path, status in files_of(place).items() if before.get(path) != status]
    results = [path for path in changed if not any(fnmatch.fnmatch(path, known) for known in STATE)]
    assert results
    for path in results:
        assert any(path == known or path.startswith(f"{known}/") for known in trace.published), path


def test_a_name_that_is_given_in_another_way_is_found(library: Path, tmp_path: Path) -> None:
    """Written in place, renamed without fsync, written again after it, linked."""
    script = """
import os
import signal
from contextlib import suppress
from pathlib import Path
Path("a").write_text("a")
Path(".b.partial-0").write_text("b")
os.rename(".b.partial-0", "b")
with open(".c.partial-0", "w") as file:
    os.fsync(file.fileno())
    file.write("c")
os.replace(".c.partial-0", "c")
os.link("c", "d")
"""
    log = tmp_path / "log"
    log.touch()
    environment = {**os.environ, "LD_PRELOAD": str(library), "TRACE_LOG": str(log)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    problems = NameTrace(log.read_text().splitlines(), tmp_path).problems
    assert [problem.replace(f"{tmp_path}/", "") for problem in problems] == [
        "a was written under its final name",
        ".b.partial-0 was published as b, not durable",
        ".c.partial-0 was published as c, not durable",
        "d was made of -, which has no temporary name",
    ]


GIVES_NAMES = {"rename", "renames", "renameat2", "link", "symlink", "symlink_to", "hardlink_to", "move"}
ELSEWHERE = {
    "blocks/renames.py": "renames in one step, for `blocks.files` and for a replaced run that is put back",
    "blocks/mount_points.py": "what is durable already is moved up, for `publish_directory`",
    "blocks/cache_directory.py": "the directory of the cache of kernels, which is checked whenever it is read",
    "blocks/corpus/held_out.py": "the files of a dataset move up in a directory that is about to be published",
    "ooc/state/generations.py": "the cells of an outdated generation become those of the next, not yet named",
    "ooc/runs/replaced_run.py": "links in a run that is about to be published",
    "samplers/lda/averaging.py": "a sample gets a temporary name, to be deleted",
}


def renaming_calls(file: Path) -> Iterator[int]:
    """Lines of calls that give a file another name; of `replace`, those of one argument, as a path has it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_path = node.func.attr == "replace" and len(node.args) == 1 and not node.keywords
            of_os = node.func.attr == "replace" and ast.unparse(node.func.value) == "os"
            if node.func.attr in GIVES_NAMES or of_path or of_os:
                yield node.lineno


def test_one_module_gives_names() -> None:
    files = [file for package in ("blocks", "ooc", "samplers") for file in (ROOT / package).rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if any(renaming_calls(file))}
    assert found == {"blocks/files.py", *ELSEWHERE}


KILLED = {
    "infer": "infer run corpus new.npz --workers 1",
    "ingest": "ingest text --lines texts.txt new --workers 1",
    "shard": "shard corpus new --shards 2 --workers 1",
    "export": "export run new.csv --format mixtures",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", KILLED)
def test_what_a_killed_command_leaves_is_cleaned(place: Path, tmp_path: Path, ooc, name: str) -> None:
    """Not while it is alive."""
    for each in place.iterdir():
        (tmp_path / each.name).symlink_to(each)
    words = [sys.executable, "-m", "ooc", *KILLED[name].split()]

    def left() -> set[str]:
        return {path.name for path in tmp_path.iterdir() if is_temporary(path.name)}

    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not left():
                assert process.poll() is None
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert left()
            assert ooc("clean", ".").stdout == ".: nothing to delete\n"
            assert left()
        finally:
            process.kill()
    until(lambda: not children())
    for path in left():  # as if some time had passed, since what has no lock yet is not deleted at once
        os.utime(tmp_path / path, (0, 0))
    assert "removed" in ooc("clean", ".").stdout
    assert not left()
