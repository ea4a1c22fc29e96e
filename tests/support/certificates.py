"""An authority, certificates that it has signed, and their keys, as PEM files that a test makes for itself."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat


class Authority:
    """One that signs; its own certificate lies in `file`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._key = rsa.generate_private_key(65537, 2048)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._signed(self._name, self._key, is_authority=True).public_bytes(Encoding.PEM))

    def issue(self, name: str, host: str | None = None, password: str | None = None) -> Path:
        """A file with a certificate, for a host or for a client, and its key, which a password may lock."""
        key = rsa.generate_private_key(65537, 2048)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        lock = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        file = self._folder / f"{name}.pem"
        certificate = self._signed(subject, key, host=host).public_bytes(Encoding.PEM)
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock) + certificate)
        file.chmod(0o600)
        return file

    def _signed(
        self, subject: x509.Name, key: rsa.RSAPrivateKey, *, host: str | None = None, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if host:
            certificate = certificate.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return certificate.sign(self._key, hashes.SHA256())
