"""Code blocks and commands in the pages of the documentation."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
BESIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]  # pages that Sphinx does not build
PAGES = [*BESIDE, *sorted((ROOT / "docs").rglob("*.md"))]


class FencedBlock(NamedTuple):
    """A fenced block.

    line: line of the page at which the fence begins.
    """

    language: str
    text: str
    line: int


class ConsoleStep(NamedTuple):
    """A command of a `console` block, and the output that the page shows; "" if it shows none."""

    command: str
    shown: str


def blocks(page: Path) -> list[FencedBlock]:
    """Return all fenced blocks of a page."""
    fences = [token for token in MarkdownIt().parse(page.read_text(encoding="utf-8")) if token.type == "fence"]
    return [FencedBlock(token.info.strip(), token.content, token.map[0] + 1) for token in fences if token.map]


def runnable(page: Path) -> list[FencedBlock]:
    """Return the blocks that a reader can run one after the other in an empty directory: `console` and `python`."""
    return [block for block in blocks(page) if block.language in ("console", "python")]


def steps(text: str) -> list[ConsoleStep]:
    """Return the commands of a `console` block: lines that start with `$ `, continued by lines that start with `> `."""
    found: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif line.startswith(">") and not found[-1][1]:
            found[-1][0].append(line[2:])
        else:
            found[-1][1].append(line)
    return [ConsoleStep("\n".join(command), "\n".join(shown)) for command, shown in found]


def agrees(shown: str, printed: str) -> bool:
    """Return whether a page shows the output of a command.

    Blanks and numbers are ignored; `…` on the page stands for one number or word, and a line `...` for any lines. The
    message about compiling kernels need not be shown.
    """
    lines = [re.escape(_plain(line)) for line in shown.strip().splitlines()]
    pattern = "".join(r"(?:.*\n)*" if line == re.escape("...") else rf"{line}\n" for line in lines)
    told = [line for line in printed.strip().splitlines() if "compiling kernels" not in line]
    plain = "".join(f"{_plain(line)}\n" for line in told)
    return re.fullmatch(pattern, plain) is not None


def _plain(line: str) -> str:
    """Return a text without numbers, and without the plural endings that depend on them."""
    plain = re.sub(r"\s+", " ", re.sub(r"-?\d[\d,.]*(e-?\d+)?|…", "#", line)).strip()
    return re.sub(r"(# \w+?)s\b", r"\1", plain)


def ooc_commands(page: Path) -> Iterator[list[str]]:
    """Return the words of all ooc commands in the blocks and the text of a page."""
    text = page.read_text(encoding="utf-8")
    inline = [token.content for token in _inline(text) if token.content.startswith("ooc ")]
    fenced = [line.removeprefix("$ ") for block in blocks(page) for line in block.text.splitlines()]
    for line in (*inline, *(line for line in fenced if line.startswith("ooc "))):
        yield shlex.split(line.replace("\\|", "|"), comments=True)[1:]


def _inline(text: str) -> Iterator:
    for token in MarkdownIt().enable("table").parse(text):
        yield from (child for child in token.children or () if child.type == "code_inline")
