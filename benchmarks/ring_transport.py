"""Measure the speed of sending slices between two processes on one machine: over TCP, plain and encrypted, and over
MPI.

    python -m benchmarks.ring_transport --megabytes 1 4 8

Rank 0 sends slices to rank 1, and the other way round at the same time with --both-ways; the transports take turns, and
the median of the rounds counts. The processor's time is that of both processes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import describe_machine, machine, table
from ooc.ring import handshake, mpi, tcp
from ooc.ring.credentials import RankCredentials, issue_credentials
from ooc.ring.ring import Ring

HOST = "127.0.0.1"
TRANSPORTS = ("TCP, plain", "TCP, encrypted", "MPI")

Result = dict[str, Any]


def options() -> argparse.Namespace:
    summary, _, details = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        "python -m benchmarks.ring_transport",
        description=summary,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--megabytes", type=float, nargs="+", default=[1.0, 4.0, 8.0], help="of a slice")
    add("--gigabytes", type=float, default=2.0, help="that are sent in a round")
    add("--rounds", type=int, default=5)
    add("--both-ways", action="store_true")
    add("--json", type=Path, help="where to write the results, too")
    add("--member", type=json.loads, help=argparse.SUPPRESS)  # this process is a rank: what `join` needs to know
    return parser.parse_args()


def exchange(ring: Ring, size: int, count: int, both_ways: bool) -> tuple[float, float]:
    """Return the elapsed seconds and the processor seconds of this process until rank 1 (and 0) has received all
    slices.
    """
    data, room = memoryview(b"slice" * -(-size // 5))[:size], memoryview(bytearray(size))

    def send() -> None:
        for number in range(count):
            ring.send(number, data)

    sender = threading.Thread(target=send if ring.rank == 0 or both_ways else lambda: None)
    ring.barrier()
    wall, processor = time.perf_counter(), time.process_time()
    sender.start()
    for number in range(count if ring.rank == 1 or both_ways else 0):
        if ring.receive(room) != (number, size):
            raise RuntimeError(f"slice {number} has not arrived as it was sent")
    sender.join()
    ring.barrier()
    return time.perf_counter() - wall, time.process_time() - processor


def join(member: dict[str, Any]) -> Ring:
    """Return the ring of this process, whose credentials are read from standard input."""
    if not member:
        return mpi.join()
    own = RankCredentials(**json.load(sys.stdin))
    door = socket.socket(fileno=member["door"])
    return tcp.join(member["rank"], member["places"], door, own, insecure=member["insecure"])


def be_member(args: argparse.Namespace) -> None:
    """Run as a rank: print the seconds for each size of slices."""
    ring = join(args.member)
    found = []
    for megabytes in args.megabytes:
        size = int(megabytes * 1e6)
        found.append(exchange(ring, size, max(1, int(args.gigabytes * 1e9 / size)), args.both_ways))
    sys.stdout.write(json.dumps(found) + "\n")  # at once: mpiexec would mix what ranks write in parts
    sys.stdout.flush()
    ring.close()


def mpiexec() -> str | None:
    """Return the path of mpiexec: from the package mpich in this environment, or the system's."""
    return shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")


def start(transport: str, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Start the processes of both ranks, or the process that starts them."""
    if transport == "MPI":
        command = [str(mpiexec()), "-n", "2", *command, "--member", "{}"]
        yield subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        return
    insecure = transport == "TCP, plain"
    doors = [handshake.listen(HOST) for _ in range(2)]
    places = [door.getsockname()[:2] for door in doors]
    for rank, own in enumerate(issue_credentials(2, insecure=insecure)):
        member = {"rank": rank, "places": places, "door": doors[rank].fileno(), "insecure": insecure}
        process = subprocess.Popen(
            [*command, "--member", json.dumps(member)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[doors[rank].fileno()],
        )
        assert process.stdin is not None
        json.dump(own._asdict(), process.stdin)
        process.stdin.close()
        doors[rank].close()
        yield process


def measure(transport: str, args: argparse.Namespace) -> list[tuple[float, float]]:
    """Return the elapsed seconds and the total processor seconds for each size of slices."""
    command = [sys.executable, "-m", "benchmarks.ring_transport", "--gigabytes", str(args.gigabytes)]
    command += ["--both-ways"] * args.both_ways + ["--megabytes", *map(str, args.megabytes)]
    printed = ""
    for process in list(start(transport, command)):
        assert process.stdout is not None
        printed += process.stdout.read()
        process.stdout.close()
        if process.wait():
            raise RuntimeError(f"a rank of {transport} ended with status {process.returncode}")
    ranks = [json.loads(line) for line in printed.splitlines()]
    return [(max(wall for wall, _ in pair), sum(used for _, used in pair)) for pair in zip(*ranks, strict=True)]


def results(args: argparse.Namespace) -> list[Result]:
    """Return medians over rounds, in each of which all transports take a turn."""
    there = [name for name in TRANSPORTS if name != "MPI" or mpiexec()]
    rounds = [{name: measure(name, args) for name in there} for _ in range(args.rounds)]
    bits = 8 * args.gigabytes * (2 if args.both_ways else 1)
    return [
        {
            "transport": name,
            "megabytes": megabytes,
            "gigabits_per_s": statistics.median(bits / turn[name][place][0] for turn in rounds),
            "slowest": min(bits / turn[name][place][0] for turn in rounds),
            "fastest": max(bits / turn[name][place][0] for turn in rounds),
            "processor_s_per_gb": statistics.median(turn[name][place][1] / bits * 8 for turn in rounds),
        }
        for name in there
        for place, megabytes in enumerate(args.megabytes)
    ]


def main() -> None:
    args = options()
    if args.member is not None:
        be_member(args)
        return
    facts = machine()
    found = results(args)
    rows = [["Gbit/s", "slice, MB", "median", "slowest", "fastest", "CPU s/GB"]]
    for result in found:
        speeds = [f"{result[key]:.2f}" for key in ("gigabits_per_s", "slowest", "fastest", "processor_s_per_gb")]
        rows.append([result["transport"], f"{result['megabytes']:g}", *speeds])
    print("\n".join([*describe_machine(facts), *table(rows)]))
    if args.json:
        args.json.write_text(json.dumps({"machine": facts, "results": found}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
