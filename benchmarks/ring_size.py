"""Measure how the cost of a ring grows with its ranks on one machine: seconds of the rendezvous, seconds of a sum over
all ranks, and memory per rank.

    python -m benchmarks.ring_size --ranks 2 8 32 64

Ranks are processes on the loopback device, all on the same cores. The time to meet is that from when all processes have
started (the last one knocks) until the last one has the ring. Memory is the largest resident set of a rank, of which
Python and its modules take what is said of a rank that has not joined.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

from benchmarks.report import describe_machine, machine, table
from benchmarks.sshd import free_port
from ooc.launch.rendezvous import join, rendezvous
from ooc.ring.ring import leave_ring_together

HOST = "127.0.0.1"

Result = dict[str, Any]


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.ring_size",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--ranks", type=int, nargs="+", default=[2, 8, 32, 64])
    add("--megabytes", type=float, default=8.0, help="of the array that is summed over all ranks")
    add("--rounds", type=int, default=3, help="sums, of which the median counts")
    add("--json", type=Path, help="where to write the results, too")
    add("--member", type=json.loads, help=argparse.SUPPRESS)  # this process is a rank
    return parser.parse_args()


def take_part(member: dict[str, Any]) -> None:
    """Run as a rank: report the start, wait for all ranks, and print the measurements."""
    before = getrusage(RUSAGE_SELF).ru_maxrss
    print(json.dumps("started"), flush=True)
    sys.stdin.readline()
    meeting = rendezvous(member["at"], member["key"], member["rank"], member["ranks"])
    began = time.monotonic()
    ring = join(meeting)
    met = time.monotonic()
    seconds = []
    with leave_ring_together(ring):
        for number in range(member["rounds"]):
            array = np.full(member["numbers"], float(number + ring.rank))
            ring.barrier()
            started = time.perf_counter()
            ring.all_reduce(array)
            seconds.append(time.perf_counter() - started)
            if (array != sum(range(ring.ranks)) + number * ring.ranks).any():
                raise RuntimeError("the sum is wrong")
    memory = [1024 * kilobytes for kilobytes in (before, getrusage(RUSAGE_SELF).ru_maxrss)]
    print(json.dumps({"began": began, "met": met, "seconds": statistics.median(seconds), "memory": memory}), flush=True)


def measure(ranks: int, numbers: int, rounds: int) -> Result:
    """Measure one ring.

    numbers: size of the array that is summed.
    """
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "ring.key")
        key.touch(0o600)
        key.write_text(secrets.token_hex(32))
        member = {"at": f"{HOST}:{free_port()}", "key": str(key), "ranks": ranks, "numbers": numbers, "rounds": rounds}
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.ring_size", "--member", json.dumps(member | {"rank": rank})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        said = [_hear(process) for process in processes]
        if said != ["started"] * ranks:
            raise RuntimeError("not all ranks have started")
        for process in processes:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        told = [_hear(process) for process in processes]
        for process in processes:
            process.communicate()
    return {
        "ranks": ranks,
        "meeting_s": max(each["met"] for each in told) - max(each["began"] for each in told),
        "all_reduce_s": max(each["seconds"] for each in told),
        "memory_bytes": max(each["memory"][1] for each in told),
        "before_bytes": max(each["memory"][0] for each in told),
    }


def _hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout
    return json.loads(process.stdout.readline())


def describe(results: Sequence[Result], megabytes: float) -> list[str]:
    rows = [
        [
            f"{each['ranks']}",
            f"{each['meeting_s']:.2f}",
            f"{each['all_reduce_s']:.2f}",
            f"{each['memory_bytes'] / 1e6:.0f}",
            f"{each['before_bytes'] / 1e6:.0f}",
        ]
        for each in results
    ]
    return table([["ranks", "meeting, s", f"sum of {megabytes:g} MB, s", "MB a rank", "of which Python"], *rows])


def main() -> None:
    given = options()
    if given.member:
        take_part(given.member)
        return
    facts, results = machine(), []
    for ranks in given.ranks:
        results.append(measure(ranks, int(given.megabytes * 1e6) // 8, given.rounds))
    print("\n".join([*describe_machine(facts), *describe(results, given.megabytes)]))
    if given.json:
        given.json.write_text(json.dumps({"machine": facts, "results": results}, indent=1))


if __name__ == "__main__":
    main()
