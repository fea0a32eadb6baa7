"""Read the file that contains the shared key of the ranks of a rendezvous."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from blocks.errors import RequestError

_DIGITS = 64  # hexadecimal digits of 32 bytes
_MOST_BYTES = 1 << 10  # maximum number of bytes read from the file
_LEAST_DIFFERENT = 16  # distinct bytes of a key; 32 random bytes have fewer with a probability of 1e-15
_HOW = "Create a key that only you can read: (umask 077; openssl rand -hex 32 > ring.key)"


def read_key(path: Path) -> bytes:
    """Return the 32-byte key in a file.

    Raises RequestError if the file is not secret or does not contain a key.

    Like ssh, refuses a file that is owned by this user and that others can read or write.
    """
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid == os.getuid() and stat.S_IMODE(found.st_mode) & 0o077:
                raise RequestError(
                    f"--key-file {path}: its permissions {stat.S_IMODE(found.st_mode):04o} are too open: others could"
                    " read the key",
                    f"Restrict them with: chmod 600 {path}",
                )
            text = file.read(_MOST_BYTES).strip()
    except OSError as error:
        raise RequestError(f"--key-file {path} cannot be read: {error.strerror}", _HOW) from None
    if not re.fullmatch(rb"[0-9A-Fa-f]{%d}" % _DIGITS, text):
        raise RequestError(f"--key-file {path}: expected {_DIGITS} hexadecimal digits and nothing else", _HOW)
    key = bytes.fromhex(text.decode())
    if len(set(key)) < _LEAST_DIFFERENT:
        raise RequestError(f"--key-file {path}: the key is not random and could be guessed", _HOW)
    return key
