"""Flags without a script around them as words: quotes, comments and continued lines."""

from __future__ import annotations

import re

from windtunnel.base.errors import FileError

LARGEST_WORD_COUNT = 20_000
_CONTINUED = re.compile(r"\\[ \t]*+\r?\n")
_PIECE = re.compile(
    r"(?P<blank>[ \t\r\n]++)|(?P<comment>\#[^\n]*+)|(?P<plain>[^ \t\r\n\\'\"#]++)|\\(?P<escaped>.)"
    r"|'(?P<single>[^']*+)'|\"(?P<double>(?:[^\"\\]|\\.)*+)\"",
    re.DOTALL,
)
_ESCAPED_IN_QUOTES = re.compile(r"\\([\\\"])")


def plain_words(text: str, where: str) -> list[str]:
    """Words by the rules of a POSIX shell, where brackets and bars are characters like others: flags as a log or a file lists them.

    One pass: the time grows with the length of the text alone. Raises `FileError` as `command.words` does.
    """
    text = _CONTINUED.sub(" ", text)
    split: list[str] = []
    pieces: list[str] = []
    at = 0

    def end_word() -> None:
        if pieces:
            split.append("".join(pieces))
            pieces.clear()
        if len(split) > LARGEST_WORD_COUNT:
            raise FileError(where, f"more than {LARGEST_WORD_COUNT} words", "the arguments of one job")

    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            what = "a backslash at the end" if text[at] == "\\" else "No closing quotation"
            raise FileError(where, what, "a command line whose quotes are closed")
        at, kind = piece.end(), piece.lastgroup or "plain"
        if kind in ("blank", "comment"):
            end_word()
        else:
            inner = piece.group(kind)
            if len(pieces) > LARGEST_WORD_COUNT:
                raise FileError(where, f"a word of more than {LARGEST_WORD_COUNT} quoted pieces", "the arguments of one job")
            pieces.append(_ESCAPED_IN_QUOTES.sub(r"\1", inner) if kind == "double" else inner)
    end_word()
    return split
