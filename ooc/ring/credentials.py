"""What the ranks of one run prove themselves with: certificates of an authority that nobody else has, and a token.

They are secrets: they travel as JSON on a channel that is encrypted, never on a command line, in the environment or in
a file that has a name. Those who use them need the standard library only.
"""

from __future__ import annotations

import os
import secrets
import ssl
from typing import Any, NamedTuple

from blocks.errors import RequestError

MOST_RECORDS = 1 << 23  # of TLS, that one key of AES-GCM encrypts: fewer than the 2**24.5 of RFC 8446, 5.5
RECORD_BYTES = 1 << 14  # of a record at most


class Credentials(NamedTuple):
    """Those of one rank; `Credentials(**credentials._asdict())` is the way to JSON and back.

    token: hexadecimal, shared by all ranks. authority, certificate, key: PEM; empty if the ring is not encrypted.
    """

    token: str
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Credentials(...)"  # what is printed or logged stays a secret

    def context(self, protocol: Any) -> ssl.SSLContext:
        """What connections are wrapped with: TLS 1.3; this rank shows its certificate and demands the other's.

        protocol: ssl.PROTOCOL_TLS_SERVER for those that are accepted, ssl.PROTOCOL_TLS_CLIENT for those that are made.
        """
        if not self.certificate:
            raise RequestError(
                "the credentials of this rank have no certificate, which an encrypted ring needs",
                "Issue credentials with certificates, or use --insecure on all ranks.",
            )
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=self.authority)
        file = _nameless_file((self.certificate + self.key).encode())
        try:
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0  # nobody comes back
        return context


def rank_name(rank: int) -> str:
    """What a rank is called in its certificate."""
    return f"rank-{rank}"


def certified_name(connection: ssl.SSLSocket) -> str:
    """Whom the authority says the other end is; empty if it does not say exactly one name."""
    names = (connection.getpeercert() or {}).get("subjectAltName", ())
    return str(names[0][1]) if len(names) == 1 else ""


def issue(ranks: int, *, insecure: bool = False) -> list[Credentials]:
    """New credentials for each rank of a run; without certificates if the ring will not be encrypted."""
    token = secrets.token_hex(32)
    if insecure:
        return [Credentials(token)] * ranks
    try:
        from ooc.ring.authority import Authority
    except ImportError:
        raise RequestError(
            "an encrypted ring needs the package cryptography, which is not installed on this machine",
            "Install it with: python -m pip install 'ooc[ring]'",
        ) from None
    authority = Authority()
    return [Credentials(token, authority.certificate, *authority.certify(rank_name(rank))) for rank in range(ranks)]


def _nameless_file(data: bytes) -> int:
    """A descriptor of memory that can be opened by a path while it is open, as the ssl module wants it."""
    try:
        file = os.memfd_create("credentials")
    except (AttributeError, OSError):
        raise RequestError(
            "an encrypted ring needs Linux and the system call memfd_create",
            "In a trusted network, use --insecure.",
        ) from None
    os.write(file, data)
    return file
