"""A launch script or command line as words: continuations, quotes, comments and simple variables, nothing executed."""

from __future__ import annotations

import re
import shlex

from windtunnel.base.errors import FileError

_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_ASSIGNED = re.compile(r"^\s*(?:export\s+|local\s+|declare\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)\+?=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]*))?\}|\$([A-Za-z_]\w*)")
_PASSES = 10
LARGEST_WORD_COUNT = 20_000


def words(text: str, where: str) -> list[str]:
    """The words of `text` after joining continued lines, with variables that it sets itself filled in.

    An array `ARGS=(--a 1)` or a string `ARGS="--a 1"` stands where it is written, so its flags are found whether or not the
    variable is used later. Raises `FileError` for an unclosed quote and for more than 20,000 words.
    """
    try:
        lexer = shlex.shlex(_CONTINUED.sub(" ", text), posix=True, punctuation_chars=False)
        lexer.whitespace_split = True
        lexer.commenters = "#"
        raw: list[str] = []
        for word in lexer:
            raw.append(word)
            if len(raw) > LARGEST_WORD_COUNT:
                raise FileError(where, f"more than {LARGEST_WORD_COUNT} words", "the arguments of one job")
    except ValueError as error:
        raise FileError(where, str(error), "a command line whose quotes are closed") from None
    values: dict[str, str] = {}
    flat: list[str] = []
    for word in raw:
        flat += _unpack(word, values)
    return [done for word in flat if (done := _filled(word, values))]


def _unpack(word: str, values: dict[str, str]) -> list[str]:
    """A word, or what an assignment holds: a plain value is remembered, flags are words in place."""
    found = _ASSIGNED.match(word)
    if found and not word.startswith("-"):
        name, value = found.group(1), found.group(2)
        if "--" in value or value.startswith("(") and value != "(":
            return [part for part in value.strip("()").split() if part]
        values[name] = value
        return []
    return [part for part in word.split() if part] if word.startswith("--") and " " in word else [_inside(word)]


def _inside(word: str) -> str:
    """A word without the parentheses of an array around it; those that it closes itself stay, as in ([0]*3+[1]*58)."""
    inner = word
    while inner.startswith("(") and inner.count("(") > inner.count(")"):
        inner = inner[1:]
    while inner.endswith(")") and inner.count(")") > inner.count("("):
        inner = inner[:-1]
    return inner or word


def _filled(word: str, values: dict[str, str]) -> str:
    for _ in range(_PASSES):
        made = _VARIABLE.sub(lambda m: values.get(m.group(1) or m.group(3), m.group(2) or m.group(0)), word)
        if made == word:
            break
        word = made
    return "" if word in ("(", ")", "()") else word
