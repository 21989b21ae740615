"""The driver's certificate and the token that agents present, and a collector's. None is ever on a command line."""

from __future__ import annotations

import datetime
import hmac
import os
import secrets as random
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windtunnel.base.errors import FileError

FILE, KEY = "secrets.json", "driver-key.pem"
VARIABLE = "WINDTUNNEL_FLEET_SECRETS"
NAME = "windtunnel-driver"
"""Name in the certificate. Agents check it, and that it is this very certificate."""
_DAYS = 365


@dataclass(frozen=True)
class Secrets:
    """What driver and agents share."""

    token: str
    certificate: str
    """PEM."""
    folders: tuple[str, ...] = ()
    """Folders in which checkpoint folders of commands may be."""

    def knows(self, token: str) -> bool:
        """Whether `token` is correct, compared in constant time."""
        return hmac.compare_digest(self.token.encode(), token.encode("utf-8", "surrogatepass"))


def make_secrets(folder: Path, folders: tuple[str, ...] = ()) -> Secrets:
    """The secrets of the driver in `folder`, created if they do not exist. Files have mode 0600; the key never leaves the
    driver.
    """
    path = folder / FILE
    if path.exists() and (folder / KEY).exists():
        return read_secrets(path)
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = _certificate()
    made = Secrets(random.token_urlsafe(32), certificate, folders)
    write_private(folder / KEY, key.encode())
    write_private(path, msgspec.json.encode(made))
    return made


def read_secrets(path: Path) -> Secrets:
    """Secrets from a file that only its owner can read; FileError otherwise."""
    try:
        mode = path.stat().st_mode
        if mode & 0o077:
            raise FileError(str(path), f"mode {mode & 0o777:o}", "a file that only its owner can read", f"Type: chmod 600 {path}")
        return msgspec.json.decode(path.read_bytes(), type=Secrets)
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "the secrets that the driver wrote") from error
    except msgspec.MsgspecError as error:
        raise FileError(str(path), str(error), "the secrets that the driver wrote") from error


def write_private(path: Path, content: bytes) -> None:
    """Atomically writes a file that only its owner can read."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _certificate() -> tuple[str, str]:
    """A self-signed certificate and its key (P-256), as PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise FileError(
            "fleet driver", "no package cryptography", "what a driver needs", "Type: pip install 'windtunnel[fleet]'"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return made.public_bytes(serialization.Encoding.PEM).decode(), pem.decode()


def token_of(file: str | None) -> str | None:
    """The shared secret of a file or of the environment."""
    if file is None:
        return os.environ.get("WINDTUNNEL_FLEET_TOKEN") or None
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(file, str(error), "a file with the token in its first line") from error
    if not token or "\n" in token or not token.isascii():
        raise FileError(file, "nothing, several lines or letters beyond ASCII", "one line of ASCII")
    return token
