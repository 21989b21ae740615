"""The shared secret of a collector without TLS."""

from __future__ import annotations

import os
from pathlib import Path

from windtunnel.base.errors import FileError


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
