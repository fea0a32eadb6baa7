"""`ooc demo`: ingest, train and infer on the Python sources of this machine."""

from __future__ import annotations

import shlex
import shutil
import sysconfig
from pathlib import Path
from typing import Annotated

import typer

from blocks.errors import RequestError, WorkFailed
from ooc.cli.variables import without_options
from ooc.launch.supervised_command import run_supervised

_MARK = "ooc-demo"  # file that marks a directory that a later demo may replace


def demo(
    out: Annotated[Path, typer.Argument(help="Directory for the dataset and the run of the demo.")] = Path("demo-run"),
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory limit of each step, such as 512MB.")] = "512MB",
) -> None:
    """Train a topic model of the Python sources on this machine.

    Shows and runs four commands: ingest, train, topics and infer.

    Example: ooc demo
    """
    if out.exists() and not (out / _MARK).exists():
        raise RequestError(f"{out} already exists and was not created by `ooc demo`", "Choose another directory.")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / _MARK).touch()
    paths = sysconfig.get_paths()
    sources = sorted({paths["stdlib"], paths["purelib"]})
    corpus, run = str(out / "corpus"), str(out / "run")
    words = ["--token-pattern", "[A-Za-z]{3,}", "--min-df", "5", "--max-df", "0.2"]
    steps = [
        ["ingest", "text", *sources, corpus, "--glob", "*.py", "--on-error", "skip", *words, "--memory", memory],
        ["train", "lda", corpus, run, "--topics", "50", "--iterations", "50", "--memory", memory],
        ["topics", run, "--top", "9", "--largest", "25"],
        ["infer", run, corpus, str(out / "mixtures.csv"), "--top", "3"],
    ]
    for step in steps:
        print(f"\n$ ooc {shlex.join(step)}", flush=True)
        if code := run_supervised(step, env=without_options()):
            raise WorkFailed(f"the demo stopped: `ooc {step[0]}` failed with exit code {code}")
