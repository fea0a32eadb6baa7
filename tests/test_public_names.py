"""The public names of the packages; and the error where a file of the user hides a package."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import samplers

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ["ooc", "blocks", "samplers"]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_shows_what_it_has(name: str) -> None:
    package = importlib.import_module(name)
    assert dir(package) == sorted([*package.__all__, "__version__"])
    assert package.__version__ == version("ooc")
    for each in package.__all__:
        assert getattr(package, each).__doc__, each
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("name", PACKAGES)
def test_type_checkers_see_the_names_that_there_are(name: str) -> None:
    """They read the imports that are not executed."""
    package = importlib.import_module(name)
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == package._MODULES


def test_estimators_are_those_of_the_models() -> None:
    import ooc

    for name in samplers.__all__:
        assert getattr(ooc, name) is getattr(samplers, name)


def run(directory: Path, script: str) -> subprocess.CompletedProcess[str]:
    (directory / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "script.py"], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("hiding", ["blocks.py", "samplers.py", "blocks/__init__.py", "samplers/__init__.py"])
def test_a_file_that_hides_a_package_is_named(hiding: str, tmp_path: Path) -> None:
    file = tmp_path / hiding
    file.parent.mkdir(exist_ok=True)
    file.write_text("x = 1\n")
    done = run(tmp_path, "from ooc import Lasso\n")
    name = hiding.partition("/")[0].removesuffix(".py")
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {file} hides the package {name!r} of ooc: rename it, or move it elsewhere"
    )
    file.unlink()
    assert run(tmp_path, "from ooc import Lasso\n").returncode == 0


def test_a_strict_type_checker_knows_the_public_names(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "from ooc import Lasso, StochasticProgram, train\n\n\n"
        "class Mine(StochasticProgram):\n    pass\n\n\n"
        "Lasso(alpha=0.1)\n"
        "train(1, 2, 3)\n"
        "Lasso(colour='red')\n"
    )
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--ignore-missing-imports",
        "script.py",
    ]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(mypy, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    wrong = {line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line}
    assert wrong == {"9", "10"}, done.stdout
