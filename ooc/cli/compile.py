"""`ooc compile`: compile kernels in advance, for example for a container image."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from blocks.errors import RequestError, WorkFailed
from blocks.plurals import count_of, size_text
from ooc.cli.console import Json, print_json, print_line, progress_bar
from ooc.cli.variables import without_options

# Commands on tiny data, which call the same kernels as commands on large data. A command with {sampler} is run once for
# each sampler.
_MF = "train mf ratings {0} --rank 4 --iterations 2 --held-out others --method {0}"
_REGRESSION = [
    "ingest svmlight samples.svm sparse",
    "ingest svmlight ones.svm ones",
    "ingest csv table.csv dense --target y",
    *(
        command
        for form in ("sparse", "ones", "dense")
        for command in (
            f"train {{0}} {form} {form}-run --path 5",
            f"train {{0}} {form} {form}-folds --path 5 --cross-validate 2",
            f"predict {form}-run {form} {form}.csv",
            f"report {form}-run --output {form}.html",
        )
    ),
]
_COMMANDS = {
    "lda": [
        "ingest text texts.txt corpus --lines",
        "ingest jsonl texts.jsonl other --vocab-from corpus",
        "train lda corpus {sampler} --sampler {sampler} --topics 4 --iterations 4 --evaluate-every 2",
        "train lda corpus optimized --topics 4 --iterations 22 --optimize-every 2",
        *(
            command.format(run)
            for run in ("two-phase", "sparse-gibbs")  # the models of these two store counts, and means of counts
            for command in (
                "infer {0} corpus {0}.csv",
                "infer {0} corpus {0}-top.csv --top 2",
                "evaluate {0} other",
                "evaluate {0} other --metrics left-to-right,npmi,c_v --top 3",
                "topics {0}",
                "export {0} {0}-trained.csv --format mixtures",
                "export {0} {0}-mallet --format mallet",
                "report {0} --output {0}.html",
            )
        ),
    ],
    "mf": [
        "ingest ratings ratings.csv ratings",
        "ingest ratings others.csv others --names-from ratings",
        *(_MF.format(method) for method in ("sgd", "ccd", "als", "splash")),
        "predict sgd others.csv predictions.csv",
        "recommend sgd --exclude-seen --out all.csv",
        "evaluate sgd others --ranking 3",
        "similar-items sgd --item 1",
        "report sgd --output sgd.html",
    ],
    "softmax": [
        "ingest svmlight samples.svm samples --by-rows",
        "train softmax samples run --passes 2",
        "predict run samples classes.csv",
    ],
    "lasso": [command.format("lasso") for command in _REGRESSION],
    "logistic": [command.format("logistic") for command in _REGRESSION],
    "poisson": [command.format("poisson") for command in _REGRESSION],
}


def compile_(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help=f"Models: {', '.join(_COMMANDS)} [default: all].")
    ] = None,
    json: Json = False,
) -> None:
    """Compile kernels in advance, so that no command has to.

    Kernels are cached in $OOC_CACHE_DIR, or in ~/.cache/ooc. Compiling all models takes 10 to 15 minutes and some tens
    of MB of disk space.

    Examples: ooc compile

    OOC_CACHE_DIR=/opt/ooc ooc compile lda mf
    """
    chosen = models or list(_COMMANDS)
    if unknown := set(chosen) - set(_COMMANDS):
        raise RequestError(f"unknown model {min(unknown)!r}", f"Choose from: {', '.join(_COMMANDS)}.")
    from blocks.kernel_cache import cache_summary

    before = cache_summary()
    remedy = "Set OOC_CACHE_DIR to a directory that only you can write to."
    if before["path"] is None:
        raise WorkFailed("no directory is private and writable, so kernels cannot be cached", remedy)
    if before["chosen"] and not (before["writable"] and Path(before["path"]).is_relative_to(before["chosen"])):
        raise RequestError(f"OOC_CACHE_DIR {before['chosen']} is not writable, or others can write to it", remedy)
    steps = [(model, command) for model in dict.fromkeys(chosen) for command in _commands(model)]
    with tempfile.TemporaryDirectory() as directory, progress_bar("compiling", len(steps), "step") as bar:
        for model in set(chosen):
            _write_data(Path(directory, model))
        for model, command in steps:
            bar.set_postfix_str(f"{model}: {command.split()[0]}")
            _run(command, Path(directory, model))
            bar.update()
    facts = cache_summary()
    if json:
        print_json(facts)
    else:
        print_line(f"{count_of(facts['kernels'], 'compiled kernel')}, {size_text(facts['bytes'])} in {facts['path']}")


def _commands(model: str) -> Iterator[str]:
    from samplers.lda.programs import SAMPLERS

    for command in _COMMANDS[model]:
        if command.startswith("report") and find_spec("vl_convert") is None:
            continue  # without vl_convert, no later report could be written either
        yield from dict.fromkeys(command.format(sampler=sampler) for sampler in SAMPLERS)


def _run(command: str, directory: Path) -> None:
    words = [sys.executable, "-P", "-m", "ooc", *command.split()]
    done = subprocess.run(words, cwd=directory, env=without_options(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkFailed(f"`ooc {command}` failed with exit code {done.returncode}", done.stderr.strip())


def _write_data(directory: Path) -> None:
    """Write a few documents, ratings and samples as text files."""
    directory.mkdir()
    numbers = random.Random(0)
    texts = [" ".join(numbers.choices(["apple", "pear", "plum", "ball", "goal", "team"], k=20)) for _ in range(60)]
    (directory / "texts.txt").write_text("\n".join(texts) + "\n")
    (directory / "texts.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    pairs = [(user, item) for user in range(1, 31) for item in numbers.sample(range(1, 21), 8)]
    lines = [f"{user},{item},{numbers.randint(1, 10) / 2}\n" for user, item in pairs]
    (directory / "ratings.csv").write_text("user,item,rating\n" + "".join(lines[::2]))
    (directory / "others.csv").write_text("user,item,rating\n" + "".join(lines[1::2]))
    rows = [[numbers.randint(0, 9) / 4 for _ in range(12)] for _ in range(60)]
    labels = [int(row[0] + row[1] + numbers.random() > 2.5) for row in rows]
    # There are so few entries that the design is stored as a sparse matrix.
    places = [sorted({row % 12 + 1, *numbers.sample(range(13, 61), 3)}) for row in range(60)]
    for name, value in (("samples.svm", 1.5), ("ones.svm", 1)):
        entries = [" ".join(f"{n}:{value}" for n in columns_of_block) for columns_of_block in places]
        samples = [f"{label} {values}\n" for label, values in zip(labels, entries, strict=True)]
        (directory / name).write_text("".join(samples))
    table = [",".join(map(str, [*row, label])) for row, label in zip(rows, labels, strict=True)]
    names = ",".join([*(f"x{n}" for n in range(12)), "y"])
    (directory / "table.csv").write_text("\n".join([names, *table]) + "\n")
