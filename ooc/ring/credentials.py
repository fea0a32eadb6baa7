"""Credentials of the ranks of one run: certificates of an authority made for the run, and a shared token.

They are secret: they are sent as JSON over an encrypted channel, never on a command line, in the environment or in a
named file. Using them needs only the standard library.
"""

from __future__ import annotations

import os
import secrets
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from blocks.errors import RequestError

if TYPE_CHECKING:
    from ooc.ring.authority import Authority

MOST_RECORDS = 1 << 23  # of TLS, that one key of AES-GCM encrypts: fewer than the 2**24.5 of RFC 8446, 5.5
RECORD_BYTES = 1 << 14  # of a record at most
NO_CHECK_TIME: Any = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL


class Credentials(NamedTuple):
    """Credentials of one rank; `Credentials(**credentials._asdict())` converts to JSON types and back.

    token: hexadecimal, shared by all ranks. authority, certificate, key: PEM; empty on an unencrypted ring.
    """

    token: str
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Credentials(...)"  # keep secrets out of output and logs

    def context(self, protocol: Any) -> ssl.SSLContext:
        """Return a TLS 1.3 context that shows this rank's certificate and requires the other's.

        protocol: ssl.PROTOCOL_TLS_SERVER for accepted connections, ssl.PROTOCOL_TLS_CLIENT for others.
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
            context.num_tickets = 0  # no session resumption
        return context


def rank_name(rank: int) -> str:
    """Return the name of a rank in its certificate."""
    return f"rank-{rank}"


def certified_name(connection: ssl.SSLSocket) -> str:
    """Return the name in the certificate of the other end; empty if there is not exactly one name."""
    names = (connection.getpeercert() or {}).get("subjectAltName", ())
    return str(names[0][1]) if len(names) == 1 else ""


def issue(ranks: int, *, insecure: bool = False) -> list[Credentials]:
    """Make new credentials for each rank of a run. insecure: without certificates, for an unencrypted ring."""
    token = secrets.token_hex(32)
    if insecure:
        return [Credentials(token)] * ranks
    authority = _authority()
    return [Credentials(token, authority.certificate, *authority.certify(rank_name(rank))) for rank in range(ranks)]


def of_holders(shared: bytes, name: str) -> Credentials:
    """Make credentials that prove to other holders of a shared key, 32 random bytes, that this process has it, too.

    name: in the certificate. The other end has to accept them at any time (NO_CHECK_TIME), whatever the clocks.
    """
    authority = _authority(shared)
    return Credentials("", authority.certificate, *authority.certify(name))


def _authority(shared: bytes | None = None) -> Authority:
    try:
        from ooc.ring.authority import Authority
    except ImportError:
        raise RequestError(
            "an encrypted ring needs the package cryptography, which is not installed on this machine",
            "Install it with: python -m pip install 'ooc[ring]'",
        ) from None
    return Authority(shared)


def _nameless_file(data: bytes) -> int:
    """Return a descriptor of anonymous memory that can be opened by a path, as the ssl module needs."""
    try:
        file = os.memfd_create("credentials")
    except (AttributeError, OSError):
        raise RequestError(
            "an encrypted ring needs Linux and the system call memfd_create",
            "In a trusted network, use --insecure.",
        ) from None
    os.write(file, data)
    return file
