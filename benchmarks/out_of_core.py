"""Train LDA out of core under several memory budgets, starting with a cold page cache, and measure how soon a killed
training resumes.

    python -m benchmarks.out_of_core --tokens 1e9 --vocabulary 1000000 --topics 1000 --memory 2GB 16GB
    python -m benchmarks.out_of_core --corpus docword.arxiv300k.txt.gz --memory 400MB 8GB --limit 512MB none

What the disk can do is measured first, in the same directory, by reading one file while another is written; what a run
read from the device is told apart from what the page cache had. Beside what was measured stands what `ooc plan` had
said before. See `benchmarks.budgets`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import budgets
from benchmarks import corpus as corpora
from benchmarks.measure import ROOT
from benchmarks.report import describe_machine, machine, table
from blocks import Dataset, write_corpus
from ooc.plan.disk_speed import DiskSpeed, measure_disk
from ooc.runs.run import Run
from ooc.training import PURPOSES

LENGTH = 100  # mean tokens of a synthetic document
TRIAL_BYTES = 1 << 30  # written, and read, to see what the disk can do
COLUMNS = (*PURPOSES, "page_cache")  # seconds that are shown


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.out_of_core", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--corpus", type=Path, help="a UCI bag of words, or a dataset made by ooc ingest; default: a synthetic one")
    add("--tokens", type=float, default=1e9, help="of the synthetic corpus")
    add("--vocabulary", type=float, default=1e6, help="of the synthetic corpus")
    add("--topics", type=int, default=1000)
    add("--sampler", default="two-phase")
    add("--iterations", type=int, default=7, help="the first and the last do not count")
    add("--kill-after", type=int, help="kill a run under the first budget at this iteration, time how soon it goes on")
    budgets.add_options(parser, "2GB", "16GB")
    return parser.parse_args()


class OutOfCoreBenchmark:
    """Benchmark with one dataset on one disk."""

    def __init__(self, args: argparse.Namespace, scratch: Path) -> None:
        self.args, self.scratch = args, scratch
        self.path = self._dataset()
        self.tokens = Dataset(self.path).tokens

    def _dataset(self) -> Path:
        args, path = self.args, self.scratch / "dataset"
        if args.corpus is None:
            documents, words = round(args.tokens / LENGTH), round(args.vocabulary)
            sizes = ["--documents", str(documents), "--vocabulary", str(words), "--topics", "100"]
            command = ["ingest", "synthetic", str(path), *sizes, "--length", str(LENGTH)]
            subprocess.run([*budgets.OOC, *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        elif args.corpus.is_dir():
            path = args.corpus
        else:
            corpus, vocabulary = corpora.load_any(args.corpus, None)
            write_corpus(path, corpus.offsets, corpus.words, vocabulary, seed=0)
        return path

    def how(self) -> list[str]:
        """Return the options of a training run, except its budget."""
        args = self.args
        what = ["--topics", str(args.topics), "--sampler", args.sampler, "--workers", str(args.workers)]
        return [*what, "--iterations", str(args.iterations), "--evaluate-every", str(args.iterations)]

    def plan(self, budget: str) -> dict[str, Any]:
        """Return the estimate of `ooc plan` for a run under a budget."""
        args = self.args
        what = ["--topics", str(args.topics), "--sampler", args.sampler, "--workers", str(args.workers)]
        command = [*budgets.OOC, "plan", str(self.path), *what, "--memory", budget, "--json"]
        return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)

    def measure(self, budget: str, limit: str) -> dict[str, Any]:
        """Train under a budget; returns means over iterations, including the checkpoints that fall due.

        The first iteration, with a cold cache, and the last, which always has a checkpoint, are left out.
        """
        planned = self.plan(budget)
        run = self.scratch / f"run-{budget}"
        found = budgets.train(["lda", *self.how()], self.path, run, budget, limit)
        lines = Run(run).metrics()[:-1]
        grown = {
            field: (lines[-1][field] - lines[0][field]) / (len(lines) - 1)
            for field in ("elapsed_s", "bytes_read", "bytes_written")
        }
        written = [after["bytes_written"] - before["bytes_written"] for before, after in itertools.pairwise(lines)]
        return found | {
            "tokens_per_s": self.tokens / grown["elapsed_s"],
            **{f"{name}_s": statistics.fmean(line[f"{name}_s"] for line in lines[1:]) for name in COLUMNS},
            "read_bytes": grown["bytes_read"],
            "written_bytes": grown["bytes_written"],
            "checkpoint_bytes": 0 if planned["written_bytes"] else max(written),
            "planned": planned,
        }

    def recover(self, budget: str) -> dict[str, Any]:
        """Kill a run after some iterations, resume it, and return the seconds until it continues."""
        run = self.scratch / "killed"
        budgets.drop_cache(self.path)
        process = budgets.start(["train", "lda", str(self.path), str(run), *self.how(), "--memory", budget])
        while len(lines_of(run)) < self.args.kill_after:
            if process.poll() is not None:
                raise SystemExit(f"--kill-after {self.args.kill_after}: training ended before")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        budgets.drop_cache(run)
        state = sum(file.stat().st_size for file in (run / "state").glob("*.cells"))
        known, began = len(logged(run)), time.perf_counter()
        process = budgets.start(["resume", str(run), "--memory", budget, "--workers", str(self.args.workers)])
        while len(logged(run)) <= known and process.poll() is None:  # a line when it goes on
            time.sleep(0.01)
        seconds = time.perf_counter() - began
        if process.wait():
            raise SystemExit(f"ooc resume ended with exit code {process.returncode}")
        return {"memory": budget, "state_bytes": state, "seconds": seconds}


def logged(run: Path) -> list[str]:
    return (run / "log.txt").read_text(encoding="utf-8").splitlines()


def lines_of(run: Path) -> list[str]:
    metrics = run / "metrics.jsonl"
    return metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []


def predicted(row: dict[str, Any], tokens: int) -> Iterator[list[str]]:
    """Return planned and measured memory, bytes of local state moved, and seconds, with the ratios.

    State in memory is only moved in checkpoints, which not every iteration has.
    """
    plan = row["planned"]
    moved = (
        "GB moved per iteration",
        plan["read_bytes"] + plan["written_bytes"],
        row["read_bytes"] + row["written_bytes"],
    )
    checkpoint = ("checkpoint, GB", plan["state_bytes"], row["checkpoint_bytes"])
    name, planned_bytes, measured_bytes = checkpoint if row["checkpoint_bytes"] else moved
    for what, planned, measured in (
        ("memory, MB", plan["memory_bytes"] / 1e6, row["held_bytes"] / 1e6),
        (name, planned_bytes / 1e9, measured_bytes / 1e9),
        ("seconds per iteration", plan["iteration_s"], tokens / row["tokens_per_s"]),
    ):
        off = f"{planned / measured - 1:+.0%}" if measured else "-"
        yield [row["memory"], what, f"{planned:,.2f}", f"{measured:,.2f}", off]


def describe(found: list[dict[str, Any]], tokens: int, disk: DiskSpeed) -> Iterator[str]:
    """Return the report of the budgets as text."""
    yield f"disk: {disk.reading / 1e6:,.0f} MB/s read while {disk.writing / 1e6:,.0f} MB/s are written"
    rows = [
        [
            "memory limit",
            "cgroup limit",
            "memory, MB",
            "M tokens/s",
            *(f"{name} s" for name in COLUMNS),
            "GB read",
            "written",
            "disk",
        ]
    ]
    for row in found:
        moved = row["read_bytes"] + row["written_bytes"]
        rows.append(
            [
                row["memory"],
                row["limit"],
                f"{row['held_bytes'] / 1e6:,.0f}",
                f"{row['tokens_per_s'] / 1e6:.2f}",
                *(f"{row[f'{name}_s']:.2f}" for name in COLUMNS),
                f"{row['read_bytes'] / 1e9:.2f}",
                f"{row['written_bytes'] / 1e9:.2f}",
                f"{moved * row['tokens_per_s'] / tokens / disk.both:.0%}",
            ]
        )
    yield from table(rows)
    for row in found:
        device = row["device_read_bytes"] / 1e9, row["device_written_bytes"] / 1e9
        yield f"{row['memory']}: the device read {device[0]:.2f} GB and wrote {device[1]:.2f} GB in all"
    rows = [["memory limit", "quantity", "ooc plan", "measured", "error"]]
    yield from table([*rows, *(line for row in found for line in predicted(row, tokens))])
    yield from budgets.compared(found, "tokens_per_s")


def main() -> None:
    args = options()
    if args.iterations < 3:
        raise SystemExit(f"--iterations {args.iterations}: at least 3, as the first and the last do not count")
    facts = machine()
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as directory:
        benchmark, disk = OutOfCoreBenchmark(args, Path(directory)), measure_disk(Path(directory), TRIAL_BYTES)
        found = [benchmark.measure(budget, limit) for budget, limit in budgets.limited(args)]
        recovered = benchmark.recover(args.memory[0]) if args.kill_after else None
    print("\n".join(describe_machine(facts)))
    print(
        f"{benchmark.tokens:,} tokens, K = {args.topics}, {args.sampler}, {args.workers} workers; means, an iteration"
    )
    print("\n".join(describe(found, benchmark.tokens, disk)))
    if recovered:
        size, seconds = recovered["state_bytes"] / 1e9, recovered["seconds"]
        print(f"killed: after {seconds:.1f} s the next began; {size:.2f} GB of state in all generations")
    budgets.save(args, facts, found, disk=disk._asdict(), recovery=recovered)


if __name__ == "__main__":
    main()
