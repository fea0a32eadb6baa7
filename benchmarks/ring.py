"""Benchmark a ring of machines, simulated as network namespaces with one core each on links of a limited rate, and
started by `ooc launch`.

    python -m benchmarks.ring --corpus /data/ring --json ring.json
    python -m benchmarks.ring --corpus /data/ring --real docword.arxiv300k.txt.gz

Contestants train the same documents, in turn, by the commands that a user would give: one machine without a ring, a
ring of one, and rings of several whose totals are stale by one macro-step or not at all, on links of --rate; and on the
loopback of one machine, TCP, plain TCP, and MPI. All that is said of iterations is from metrics.jsonl; the held-out
likelihood is that of `ooc evaluate`. A rank has one worker, and a core for all its processes: its memory is what these
hold, see benchmarks.measure; a ring of four is there for that alone if there are fewer cores. At the end stands what
was asked for, and what `ooc plan` makes of these speeds for more machines. It takes root, sshd, and ip and tc of
iproute2. How fast slices go without a link's limit says benchmarks.ring_transport.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.link import rate_between
from benchmarks.namespaces import NamespaceMachines, possible
from benchmarks.report import describe_machine, machine
from benchmarks.ring_corpora import CorporaDirectory, real, synthetic
from benchmarks.ring_paper import described, extrapolate
from benchmarks.ring_report import describe, sampling_speed
from benchmarks.ring_runs import CONTESTANTS, RingRuns, RingRunSettings
from benchmarks.ring_transport import mpiexec
from benchmarks.sshd import SSHD
from blocks.corpus.dataset import Dataset
from samplers.lda.packed_counts import random_bytes
from samplers.lda.programs import sampler_spec
from samplers.lda.training import DEFAULT_BETA, default_alpha


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.ring",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--real", type=Path, help="a UCI bag of words in place of the synthetic corpus")
    add("--tokens", type=float, default=200e6, help="of the synthetic corpus")
    add("--vocabulary", type=float, default=100_000, help="of the synthetic corpus")
    add("--planted", type=int, default=1000, help="topics that the synthetic corpus is drawn from")
    add("--held-out", type=int, default=10_000, help="documents")
    add("--corpus", type=Path, help="where datasets are kept, and found again; default: nowhere")
    add("--topics", type=int, default=1000)
    add("--iterations", type=int, default=20)
    add("--ranks", type=int, default=2, help="of the rings of several")
    add("--rate", default="1gbit", help="of the links, as tc takes it")
    add("--memory", default="8GB", help="budget of a rank")
    add("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    add("--rounds", type=int, default=1, help="in each of which all contestants have their turn")
    add("--scratch", type=Path, help="for runs")
    add("--json", type=Path, help="where to write the results, too")
    return parser.parse_args()


def check(args: argparse.Namespace) -> None:
    """Exit unless this machine can run the requested benchmark."""
    if args.iterations < 2:
        raise SystemExit(f"--iterations {args.iterations}: at least 2, as the first does not count")
    for tool in ("ip", "tc", "taskset", "nsenter"):
        if shutil.which(tool) is None:
            raise SystemExit(f"there is no {tool}: install iproute2 and util-linux")
    if SSHD is None or not possible():
        raise SystemExit("this takes sshd, and root that may make network namespaces")
    if len(os.sched_getaffinity(0)) < args.ranks:
        raise SystemExit(f"--ranks {args.ranks}: there are {len(os.sched_getaffinity(0))} cores, a rank needs its own")
    if "mpi" in args.contestants and mpiexec() is None:
        raise SystemExit("there is no mpiexec: install the package mpich, or leave mpi out of --contestants")


def corpus(args: argparse.Namespace, folder: Path) -> CorporaDirectory:
    if args.real:
        return real(folder, args.real, args.held_out)
    return synthetic(folder, round(args.tokens), round(args.vocabulary), args.planted, args.held_out)


def planned_bytes(data: CorporaDirectory, topics: int, ranks: int, iterations: int) -> list[int]:
    """Return the bytes that all ranks are expected to send in each iteration.

    The first iteration includes the initialization, in which slices travel with the tokens of the ranks visited so far.
    """
    options = {"topics": topics, "alpha": default_alpha(topics), "beta": DEFAULT_BETA, "seed": 0}
    dataset = Dataset(Path(data.shards(ranks).format(rank=0)))
    shares = (dataset.whole.frequencies * been // ranks for been in range(1, ranks))
    start = sum(random_bytes(share, topics) for share in shares)
    program = sampler_spec("two-phase", options, {}, on_ring=True).build(dataset)
    first, *others = (ranks * program.sent_bytes(ranks, iteration + 1) for iteration in range(iterations))
    return [start + first, *others]


def main() -> None:
    args = options()
    check(args)
    facts = machine()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was begun is undone
    with tempfile.TemporaryDirectory(dir=args.scratch, prefix="ooc-benchmark-") as scratch:
        data = corpus(args, (args.corpus or Path(scratch)).absolute())
        machines = NamespaceMachines(
            Path(scratch), max(args.ranks, *(CONTESTANTS[key].ranks for key in args.contestants))
        )
        with machines.running():
            try:
                machines.shape(args.rate)
            except subprocess.CalledProcessError as error:
                raise SystemExit(f"--rate {args.rate}: {error.stderr.strip()}") from None
            link = rate_between(machines, 0, 1)
            runs = RingRuns(machines, data, RingRunSettings(args.ranks, args.topics, args.iterations, args.memory))
            rounds = [{key: runs.run(CONTESTANTS[key]) for key in args.contestants} for _ in range(args.rounds)]
        dataset = Dataset(data.whole)
        several = {result["ranks"] for result in rounds[0].values()} - {1}
        planned = {ranks: planned_bytes(data, args.topics, ranks, args.iterations) for ranks in several}
    print("\n".join(describe_machine(facts)))
    print(
        f"{dataset.tokens:,} tokens, {dataset.documents:,} documents, {dataset.vocabulary_size:,} words; "
        f"K = {args.topics}, {args.iterations} iterations; links carry {8 * link / 1e9:.2f} Gbit/s"
    )
    print("\n".join(describe(rounds, planned)))
    if "ring" in args.contestants:
        paper = extrapolate(dataset, args.topics, sampling_speed(rounds[0]["ring"]), link)
        print("\n".join(["", *described(paper)]))
    if args.json:
        whole = {"machine": facts, "link": link, "planned_bytes": planned, "rounds": rounds}
        args.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
