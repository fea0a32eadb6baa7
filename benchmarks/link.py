"""Measure the speed of a link between two machines of `benchmarks.namespaces` by sending bytes over a plain socket."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

from benchmarks.measure import ROOT
from benchmarks.namespaces import NamespaceMachines

PORT = 5001
SECONDS = 2.0
_PIECE = 1 << 18


def rate_between(machines: NamespaceMachines, sender: int, receiver: int) -> float:
    """Return the bytes per second from one machine to another."""
    address = machines.addresses[receiver]
    command = [sys.executable, "-m", "benchmarks.link", address]
    receiving = subprocess.Popen(
        [*machines.inside(receiver), *command, "receive"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    subprocess.run([*machines.inside(sender), *command, "send"], cwd=ROOT, check=True)
    return float(receiving.communicate(timeout=30 * SECONDS)[0])


def _send(address: str) -> None:
    until, piece = time.monotonic() + 30 * SECONDS, bytes(_PIECE)
    while True:
        try:
            link = socket.create_connection((address, PORT))
            break
        except ConnectionRefusedError:  # the other one has not begun to listen
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    with link:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            link.sendall(piece)


def _receive(address: str) -> float:
    with socket.create_server((address, PORT)) as door:
        link, _ = door.accept()
    with link:
        size, began = 0, time.monotonic()
        while piece := link.recv(_PIECE):
            size += len(piece)
        return size / (time.monotonic() - began)


if __name__ == "__main__":
    _send(sys.argv[1]) if sys.argv[2] == "send" else print(_receive(sys.argv[1]))
