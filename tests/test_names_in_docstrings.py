"""Names in backticks in docstrings and docs are of something that is there."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("blocks", "ooc", "samplers", "benchmarks", "examples", "tests")
PATH = re.compile(r"`((?:blocks|ooc|samplers|benchmarks|examples|tests|docs)/[a-z_/]*(?:/|\.\w+))`")
NAME = re.compile(r"`([A-Za-z_][\w.]*\w)`")
FILES = re.compile(r"\.(json|jsonl|txt|h5|npz|parquet|png|py|md|gz|model)$")
ELSEWHERE = {"held_out_loss_of_M", "save_to_disk"}  # a pattern of names; of another library


@cache
def modules() -> dict[str, ast.Module]:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    names = (".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files)
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in zip(names, files, strict=True)}


@cache
def words() -> set[str]:
    """All names and all words of short strings in the code, not in comments."""
    found = set()
    for file in (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.NAME:
                found.add(token.string)
            elif token.type == tokenize.STRING and "\n" not in token.string:
                found.update(re.findall(r"\w+", token.string))
    return found


def texts() -> Iterator[tuple[str, str]]:
    for page in {*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")} - {
        ROOT / "docs" / "moving.md",  # of other libraries
        ROOT / "CHANGELOG.md",  # of what there was
    }:
        yield page.name, page.read_text(encoding="utf-8")
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (said := ast.get_docstring(node)):
                yield name, said


@cache
def dumped(module: str) -> str:
    return ast.dump(modules()[module])


@cache
def is_there(name: str) -> bool:
    """Whether a name is one of ours, whole: a module, what is in one, or a word of the code."""
    first, *rest = name.split(".")
    if first not in FOLDERS[:4] or not rest:
        return {first, *rest} <= words() or any(known.endswith(f".{name}") for known in modules())
    module = max((known for known in modules() if f"{name}.".startswith(f"{known}.")), key=len)
    inside = name.removeprefix(module).strip(".").split(".")
    return all(not part or f"'{part}'" in dumped(module) for part in inside)


def test_names_in_backticks_are_there() -> None:
    wrong = [
        f"{where}: `{name}`"
        for where, text in texts()
        for name in NAME.findall(text)
        if ("_" in name or "." in name) and not FILES.search(name) and name not in ELSEWHERE
        if not name.startswith("OOC_") and not is_there(name)
    ]
    assert wrong == []


def test_paths_in_backticks_are_there() -> None:
    named = [(where, path) for where, text in texts() for path in PATH.findall(text) if "NAME" not in path]
    assert len(named) > 20
    assert [f"{where}: {path}" for where, path in named if not (ROOT / path).exists()] == []
