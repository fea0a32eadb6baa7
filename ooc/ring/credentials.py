"""Credentials of the ranks of a run: certificates issued by an authority created for the run, and a shared token.

Credentials are secret: they are sent as JSON over an encrypted channel, never on a command line, in the environment or
in a named file. Using them needs only the standard library; issuing them needs the package cryptography.
"""

from __future__ import annotations

import os
import secrets
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

from blocks.errors import RequestError

if TYPE_CHECKING:
    from ooc.ring.authority import CertificateAuthority

MOST_RECORDS = 1 << 23  # TLS records encrypted with one AES-GCM key; RFC 8446, 5.5 allows 2**24.5
RECORD_BYTES = 1 << 14  # maximum size of a TLS record
NO_CHECK_TIME: Any = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL


class RankCredentials(NamedTuple):
    """The credentials of one rank. `_asdict` converts them to JSON types, and `RankCredentials(**values)` converts them
    back.

    token: hexadecimal, shared by all ranks.
    authority, certificate, key: PEM; empty on an unencrypted ring.
    """

    token: str
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Credentials(...)"  # keep secrets out of output and logs

    def context(self, protocol: Any) -> ssl.SSLContext:
        """Return a TLS 1.3 context that presents this rank's certificate and requires one from the peer.

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
    """Return the name that a rank has in its certificate."""
    return f"rank-{rank}"


def certified_name(connection: ssl.SSLSocket) -> str:
    """Return the name in the peer's certificate; "" unless there is exactly one name."""
    names = (connection.getpeercert() or {}).get("subjectAltName", ())
    return str(names[0][1]) if len(names) == 1 else ""


def issue_credentials(ranks: int, *, insecure: bool = False) -> list[RankCredentials]:
    """Return new credentials for each rank of a run.

    insecure: omit the certificates, for an unencrypted ring.
    """
    token = secrets.token_hex(32)
    if insecure:
        return [RankCredentials(token)] * ranks
    authority = _authority()
    return [RankCredentials(token, authority.certificate, *authority.certify(rank_name(rank))) for rank in range(ranks)]


def key_credentials(shared: bytes, name: str) -> RankCredentials:
    """Return credentials that prove to other holders of a shared key, 32 random bytes, that this process holds it, too.

    name: name in the certificate. Peers must not check its period of validity (NO_CHECK_TIME), as clocks may differ.
    """
    authority = _authority(shared)
    return RankCredentials("", authority.certificate, *authority.certify(name))


def _authority(shared: bytes | None = None) -> CertificateAuthority:
    try:
        from ooc.ring.authority import CertificateAuthority
    except ImportError:
        raise RequestError(
            "an encrypted ring needs the package cryptography, which is not installed on this machine",
            "Install it with: python -m pip install 'ooc[ring]'",
        ) from None
    return CertificateAuthority(shared)


def _nameless_file(data: bytes) -> int:
    """Return a file descriptor of anonymous memory, which can be opened by its path, as the ssl module requires."""
    try:
        file = os.memfd_create("credentials")
    except (AttributeError, OSError):
        raise RequestError(
            "an encrypted ring needs Linux and the system call memfd_create",
            "In a trusted network, use --insecure.",
        ) from None
    os.write(file, data)
    return file
