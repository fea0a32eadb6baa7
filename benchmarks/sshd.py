"""Run a real sshd for tests and benchmarks, with new keys and a client configuration."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

SSHD = shutil.which("sshd") or next((path for path in ("/usr/sbin/sshd", "/sbin/sshd") if Path(path).exists()), None)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def make_keys(folder: Path) -> None:
    """Create keys of a host and of a user in the files `host` and `user`."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)


@contextlib.contextmanager
def serve(
    folder: Path, address: str, port: int, prefix: Sequence[str] = (), more: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """Run sshd with the keys in a folder until the end of the context, which also ends its sessions.

    Its log is written to `sshd-ADDRESS-PORT.log`.

    prefix: words that precede the command.
    more: additional configuration lines.
    """
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in ("XDG_CACHE_HOME",) if name in os.environ}
    config = folder / f"sshd-{address}-{port}"
    config.write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 100\n{more}"
        + "".join(f"SetEnv {name}={value}\n" for name, value in kept.items())
    )
    log = folder / f"{config.name}.log"
    with log.open("wb") as messages:
        process = subprocess.Popen([*prefix, str(SSHD), "-D", "-e", "-f", str(config)], stderr=messages)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def client_config(folder: Path, hosts: dict[str, tuple[str, int]]) -> Path:
    """Return the configuration for `ssh -F`, given address and port of each host."""
    known = folder / "known_hosts"
    key = (folder / "host.pub").read_text()
    known.write_text("".join(f"[{address}]:{port} {key}{address} {key}" for address, port in hosts.values()))
    common = f"User {getpass.getuser()}\nIdentityFile {folder}/user\nIdentitiesOnly yes\nUserKnownHostsFile {known}\n"
    places = (f"Host {name}\nHostName {address}\nPort {port}\n" for name, (address, port) in hosts.items())
    path = folder / "config"
    path.write_text("\n".join([*places, f"Host *\n{common}StrictHostKeyChecking yes\n"]))
    return path


def wait_for(config: Path, names: Sequence[str], prefix: Sequence[str] = ()) -> None:
    """Wait until all hosts can be reached."""
    for name in names:
        deadline = time.monotonic() + 30
        command = [*prefix, "ssh", "-F", str(config), "-o", "BatchMode=yes", name, "true"]
        while (tried := subprocess.run(command, capture_output=True, check=False)).returncode:
            assert time.monotonic() < deadline, tried.stderr
            time.sleep(0.1)
