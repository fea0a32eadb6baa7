"""The pages of the documentation: what they let a reader run does run, and what they name is there."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from built_pages import BuiltPage
from pages import BESIDE, PAGES, ROOT, FencedBlock, agrees, ooc_commands, runnable, steps
from typer.main import get_command

from ooc.cli.app import app

LONG = {
    "tutorial.md",
    "own-program.md",
    "dynamic_engine.md",
    "gallery.md",
    "scripts.md",
    "documents-and-groups.md",
    "input.md",
    "vocabulary.md",
    "choosing-topics.md",
    "larger-than-memory.md",
    "several-machines.md",
    "schedulers.md",
    "moving.md",
    "factorization.md",
    "regression.md",
}
IDS = {"ids": lambda page: str(page.relative_to(ROOT))}
REFERENCE = [page for page in PAGES if page.parent.name == "api"]
COMMANDS = get_command(app)


def prepare_readme(directory: Path) -> None:
    """A file of the name that README.md speaks of, with paragraphs of the texts that Python's help() shows."""
    from pydoc_data.topics import topics

    with gzip.open(directory / "arxiv25k.jsonl.gz", "wt", encoding="utf-8") as file:
        for name, page in topics.items():
            parts = (part for part in page.split("\n\n") if len(part) > 100)  # no document is empty
            # Several times, so that the dataset has the size of megabytes that the page shows.
            file.writelines((json.dumps({"id": name, "text": part}) + "\n") * 8 for part in parts)


@pytest.mark.timeout(1500)  # a page has a dozen commands
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] * (page.name in LONG))
        for page in PAGES
        if runnable(page) and page not in REFERENCE
    ],
    **IDS,
)
def test_what_a_page_lets_a_reader_run_does_what_it_says(page: Path, tmp_path: Path) -> None:
    if page.name == "README.md":
        prepare_readme(tmp_path)
    for block in runnable(page):
        run_python(block, tmp_path) if block.language == "python" else run_console(page, block, tmp_path)


def test_the_examples_of_the_reference_run(tmp_path: Path) -> None:
    """In one process, as most of the time is that of imports."""
    examples = [block.text for page in REFERENCE for block in runnable(page)]
    done = started(["python", "-c", f"for example in {examples!r}: exec(example, {{}})"], tmp_path)
    assert done.returncode == 0, done.stdout


def run_python(block: FencedBlock, directory: Path) -> None:
    """Run a script; one that begins with its name, as `# name.py`, is kept for a command that follows."""
    if name := re.match(r"# (\w+\.py)\n", block.text):
        (directory / name[1]).write_text(block.text)
        return
    done = started(["python", "-c", block.text], directory)
    assert done.returncode == 0, f"line {block.line}: {done.stdout}"


def run_console(page: Path, block: FencedBlock, directory: Path) -> None:
    """Run its commands; they fail if, and only if, the page shows a message of a failure."""
    for step in steps(block.text):
        done = started(["bash", "-c", step.command], directory)
        said = f"{page.name}, line {block.line}: {step.command}\n{done.stdout}"
        assert (done.returncode != 0) == step.shown.startswith("ooc: "), said
        assert not step.shown or agrees(step.shown, done.stdout), said


def started(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """A process that finds this environment's programs first; its messages are among what it printed."""
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_commands_that_a_page_names_are_there(page: Path) -> None:
    """With all the options that it gives them."""
    for words in ooc_commands(page):
        check_command(COMMANDS, words)


def check_command(command: Any, words: list[str]) -> None:
    """A word such as `lda|mf` names several commands. What follows `--` is a command of its own."""
    if words and hasattr(command, "commands"):
        if words[0].startswith(("-", "...")) or words[0].isupper():
            return
        for name in words[0].split("|"):
            assert name in command.commands, f"there is no command {' '.join(words)}"
            check_command(command.commands[name], words[1:])
        return
    own, inner = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    if command.name == "show":
        own, inner = [], own
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in own:
        name = word.strip("[]").split("=")[0]
        assert not name.startswith("--") or name in options | {"--help"}, f"there is no {name}: {' '.join(words)}"
    if inner:
        check_command(COMMANDS, inner)


@pytest.mark.parametrize(
    "said",
    [
        "train nmf DATA RUN",
        "topics RUN --tops 5",
        "launch --hosts F -- train lda D R --topic 5",
        "config show train lda --topic 5",
    ],
)
def test_what_is_not_there_is_noticed(said: str) -> None:
    with pytest.raises(AssertionError):
        check_command(COMMANDS, said.split())


@pytest.mark.parametrize("page", PAGES, **IDS)
def test_benchmarks_and_links_of_a_page_are_there(page: Path) -> None:
    """Links between pages are checked by `make docs`; those of README.md, which is none of them, here."""
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"python -m benchmarks\.([a-z][a-z0-9_]+)", text):
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), name
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


@pytest.mark.long
def test_the_pages_are_built_without_a_warning_or_fault(tmp_path: Path) -> None:
    """So links between them lead somewhere, docstrings are as they should be, and a reader sees no markup."""
    command = ["sphinx-build", "--fail-on-warning", "--keep-going", "--quiet", str(ROOT / "docs"), "site"]
    done = started(command, tmp_path)
    assert done.returncode == 0, done.stdout
    built = {page: built_page(tmp_path / "site", page) for page in PAGES if page not in BESIDE}
    assert "ooc train lda" in built[ROOT / "docs/commands.md"].text
    assert "StaticProgram" in built[ROOT / "docs/api/programs.md"].text
    titles = Counter(page.title for page in built.values())
    assert [title for title, count in titles.items() if count > 1 or not title] == []
    assert [f"{path.name}: {fault}" for path, page in built.items() for fault in page.faults()] == []


def built_page(site: Path, page: Path) -> BuiltPage:
    file = (site / page.relative_to(ROOT / "docs")).with_suffix(".html")
    return BuiltPage(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ("<p>the sum\\_i of all</p>", "a backslash"),
        ("<p>| a | b | | --- | --- |</p>", "a table that is none"),
        ("<p>see <a href='files.html'>files.md</a></p>", "a link that reads as a file"),
        ("<p>then $$ x = 1 $$</p>", "a formula that is none"),
        ("<script src='https://cdn.example.org/math.js'></script>", "loaded from elsewhere"),
        ("<p>in <code>sum\\_i</code>, <pre>a | --- | b</pre> and <span class='math'>\\(\\frac\\_2\\)</span></p>", ""),
        ("<p>it is <strong>so</strong>: <a href='files.html'>Files</a></p>", ""),
    ],
)
def test_a_fault_of_a_built_page_is_noticed(html: str, fault: str) -> None:
    found = BuiltPage(f"<article role='main'><h1>Title</h1>{html}</article>").faults()
    assert [each.partition(":")[0] for each in found] == [fault] * bool(fault)


def test_every_parameter_and_attribute_of_an_estimator_has_a_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """And every public name of the packages is on one page."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    reference = importlib.import_module("reference")
    for page in reference.ESTIMATORS:
        cells = [line.strip("| ").split(" | ") for line in reference.filled(page, reference.PLACE).splitlines()]
        assert all(all(row) for row in cells if row[0].startswith("`")), page
    named = [name for names in reference.SUBJECTS.values() for name in names]
    assert sorted(named) == sorted(reference.public_names())


def test_what_is_shown_is_compared_but_for_numbers() -> None:
    assert agrees("run: 3 files, 1.2 MB\n...\ndone", "run: 4 files, 10,000.25 MB\nother\n\ndone\n")
    assert not agrees("run: 3 files", "run: 3 directories")
    assert not agrees("run: 3 files", "run: 3 files\nmore")
    assert [step.shown for step in steps("$ cat > f <<'E'\n> a\n> E\n$ cat f\na\n")] == ["", "a"]
