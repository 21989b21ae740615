"""Words of a question that could name a file of the server: refused before anything runs.

A question runs in a folder that holds its uploads and nothing else. A word may name a file in it, or something of the catalogue, so
a relative name without `..` is harmless. The process of the question is confined as well (`work/confine.py`): this check is there
for its message.
"""

from __future__ import annotations

import re

from windtunnel.base.errors import FileError, SpecError

MOST_NAME = 200
"""Characters of the name of an upload."""
_PARTS = re.compile(r"[\s,=:@|'\"()\[\]{}<>;]+")
_SCHEME = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://")
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]+(?:/[^/\\\x00-\x1f\x7f]+)*")


def check_word(field: str, word: str) -> None:
    """FileError for a word of a question that names a place outside of its uploads: absolute, with `..`, from a home, or a URL."""
    if "\x00" in word:
        raise SpecError(field, word, "text without a null character")
    if not word.isascii():
        try:
            word.encode("utf-8")
        except UnicodeEncodeError as error:
            raise SpecError(field, ascii(word), "text that UTF-8 can hold") from error
    if _SCHEME.search(word):
        raise FileError(
            field, word, "a name of the catalogue or of an upload", "The service opens no URL. Upload the file in `files`."
        )
    for part in _PARTS.split(word):
        if part.startswith(("/", "~", "\\")) or ".." in re.split(r"[/\\]", part):
            hint = "The service reads no file of its machine. Upload the file in `files` and name it here."
            raise FileError(field, word, "a name of the catalogue or of an upload", hint)


def check_name(name: str) -> str:
    """The name of an upload: relative, without `.` and `..`. FileError for another one."""
    parts = name.split("/")
    if (
        not _NAME.fullmatch(name) or len(name) > MOST_NAME or any(part in ("", ".", "..") for part in parts)
        or name.startswith(("~", "-")) or len(parts) > 8 or any(len(part.encode("utf-8", "replace")) > 200 for part in parts)
    ):  # fmt: skip
        raise FileError("files", name[:80], f"a relative name of at most {MOST_NAME} characters, without . and ..")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileError("files", ascii(name)[:80], "a name that UTF-8 can hold") from error
    return name
