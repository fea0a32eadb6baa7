"""Certificate authority of one run, or of all processes that hold a shared key.

Its private key is kept in memory, and only while certificates are issued.
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_VALID = timedelta(days=1)  # ranks present their certificates only once, in the handshake
_CLOCKS = timedelta(hours=1)  # maximum difference between clocks
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # order of P-256 (FIPS 186-4, D.1.2.3)
_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class CertificateAuthority:
    """A certificate authority.

    certificate: its own certificate, PEM.

    shared: 32 random bytes from which the private key is derived, so that all processes that hold these bytes act as
        the same authority; by default, a new private key is generated.
    """

    def __init__(self, shared: bytes | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1()) if shared is None else _derived(shared)
        self._name = _name("one run of ooc")
        self.certificate = self._signed(
            self._certificate(self._name, self._key.public_key(), "key_cert_sign").add_extension(
                x509.BasicConstraints(ca=True, path_length=0), critical=True
            )
        )

    def certify(self, name: str) -> tuple[str, str]:
        """Return a certificate for a name and its private key, both PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(_name(name), key.public_key(), "digital_signature").add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False
        )
        plain = serialization.NoEncryption()
        text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        return self._signed(certificate), text.decode()

    def _certificate(self, name: x509.Name, key: ec.EllipticCurvePublicKey, use: str) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number(), now - _CLOCKS, now + _VALID)
            .add_extension(x509.KeyUsage(**{each: each == use for each in _USES}), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer, critical=False)
        )

    def _signed(self, certificate: x509.CertificateBuilder) -> str:
        return certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _derived(shared: bytes) -> ec.EllipticCurvePrivateKey:
    """Return the private key derived from a shared key.

    Private keys are integers below the order of the curve; 512 random bits modulo a 256-bit order are close to uniform.
    """
    number = int.from_bytes(hmac.digest(shared, b"ooc: authority of a rendezvous", "sha512"))
    return ec.derive_private_key(1 + number % (_ORDER - 1), ec.SECP256R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
