"""The driver's certificate and the token that agents present, and a collector's. None is ever on a command line.

Tokens of the collectors that this user runs on this machine, in files that only the user can read, by the collector's port.

A folder for the sockets and tokens of this user on this machine, in which nobody else can make or take the user's place.
"""

from __future__ import annotations

import contextlib
import datetime
import hmac
import json
import os
import secrets
import secrets as random
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.starting import start_of

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


LOOPBACK = ("127.0.0.1", "localhost", "::1")
TOKEN = "token"
"""File with a collector's token, in its folder."""


def folder_token(folder: Path) -> str:
    """The token of a collector's folder, made if there is none. It stays, so that shippers know a collector that starts again."""
    path = folder / TOKEN
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if not path.lstat().st_mode & 0o077 and (token := path.read_text(encoding="ascii").strip()):
            return token
    token = secrets.token_urlsafe(32)
    write_private(path, token.encode() + b"\n")
    return token


def publish_token(url: str, token: str) -> Path | None:
    """Lets processes of this user find the token of the collector that this process runs at `url`, on loopback; the file, which
    the collector removes at its end. None where there is no private folder for it."""
    try:
        path = _file(url, make=True)
        if path is None:
            return None
        told = {"token": token, "pid": os.getpid(), "started": start_of(os.getpid())}
        write_private(path, json.dumps(told).encode())
    except (OSError, FileError):
        return None
    return path


def local_token(url: str) -> str | None:
    """The token of a collector at `url`, if this user runs it on this machine, now."""
    path = _file(url)
    try:
        if path is None or not is_private(path.parent) or not _is_private(path):
            return None
        told = json.loads(path.read_bytes())
        alive = told["started"] and start_of(int(told["pid"])) == told["started"]
        return str(told["token"]) if alive else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _file(url: str, make: bool = False) -> Path | None:
    """Where the token of a collector on loopback is; None for another address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 8470
    except ValueError:
        return None
    if parts.scheme != "http" or host not in LOOPBACK:
        return None
    return runtime_folder(make) / f"collector-{port}.json"


def _is_private(path: Path) -> bool:
    """Whether a file is this user's, and nobody else's business."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def runtime_folder(make: bool = True) -> Path:
    """The folder, the same for all processes of the user: `windtunnel-UID` in the folder for temporary files; if another user has
    that name, one in XDG_RUNTIME_DIR, else the first private one of the names `windtunnel-UID-RANDOM`, made where there is none.
    FileError if `make` and none can be made; otherwise the first name, which may not exist.
    """
    places = Path(tempfile.gettempdir())
    usual = places / f"windtunnel-{os.getuid()}"
    own = Path(os.environ.get("XDG_RUNTIME_DIR") or usual)
    named = [usual, *([own / "windtunnel"] if own != usual and is_private(own) else [])]
    for folder in named:
        if is_private(folder) or (make and _make(folder)):
            return folder
    others = (folder for folder in sorted(places.glob(f"windtunnel-{os.getuid()}-*")) if is_private(folder))
    known = next(others, None)
    if known is not None or not make:
        return known or usual
    try:
        return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=places))
    except OSError as error:
        raise FileError(str(places), error.strerror or str(error), "a folder in which a private one can be made") from error


def is_private(folder: Path) -> bool:
    """Whether a folder is there, is this user's, and nobody else may enter it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _make(folder: Path) -> bool:
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    return is_private(folder)
