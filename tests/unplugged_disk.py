"""A file system in a file that can be shut down without flushing, like a power failure."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

from fork_server import nursery
from processes import until

SHUTDOWN, WITHOUT_FLUSHING = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH
SIZE = 100_000_000


class OocProcess:
    """`ooc` as a process that leads a process group."""

    def __init__(self, place: Path, command: str) -> None:
        reads, writes = os.pipe()
        with Path(os.devnull).open("r+") as nothing, os.fdopen(writes) as theirs:
            streams = [nothing.fileno(), nothing.fileno(), theirs.fileno()]
            self._forked, self._status = nursery().start([*command.split(), "--quiet"], place, streams)
        self._told, self.pid, self.message = os.fdopen(reads), self._forked.pid, ""

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code: None while the process runs, -9 if it was killed."""
        self._status.settimeout(timeout)
        try:
            return int(self._status.recv(16) or -signal.SIGKILL)
        except TimeoutError:
            return None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Wait until no process of it is left, which then has closed its standard error."""
        self.message = self._told.read()
        self._forked.wait()
        self._told.close()
        self._status.close()


class LoopbackDisk:
    """A file system in a file, mounted at `place`."""

    counts = False  # calls

    def __init__(self, directory: Path) -> None:
        self.image, self.before, self.place = directory / "image", directory / "before", directory / "mount"
        self.place.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True)
        self._mount()

    def _mount(self) -> None:
        options = "loop,data=writeback,commit=600"  # nothing reaches the disk by itself
        subprocess.run(["mount", "-o", options, self.image, self.place], check=True)

    def release(self) -> None:
        # A process that ends lets go of its directory a moment after its files are closed.
        until(lambda: subprocess.run(["umount", self.place], check=False, capture_output=True).returncode == 0)

    def keep(self) -> None:
        """Save the current contents, which are restored before each trial."""
        self.release()
        subprocess.run(["cp", "--sparse=always", self.image, self.before], check=True)  # without writing what is empty

    def restore(self) -> None:
        subprocess.run(["cp", "--sparse=always", self.before, self.image], check=True)
        self._mount()

    def end(self, process: OocProcess) -> None:
        """Cut the power under a command."""
        descriptor = os.open(self.place, os.O_RDONLY)
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING))
        os.close(descriptor)
        process.kill()
        process.end()
        self.release()
        self._mount()
