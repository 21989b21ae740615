"""A launch script or command line as words: continued lines, quotes, comments and simple variables. Nothing is executed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from windtunnel.base.errors import FileError

_CONTINUED = re.compile(r"\\[ \t]*+\r?\n")
_PIECE = re.compile(
    r"(?P<blank>[ \t\r\n]++)|(?P<comment>\#[^\n]*+)|(?P<plain>[^ \t\r\n\\'\"#]++)|\\(?P<escaped>.)"
    r"|'(?P<single>[^']*+)'|\"(?P<double>(?:[^\"\\]|\\.)*+)\"",
    re.DOTALL,
)
_ESCAPED_IN_QUOTES = re.compile(r"\\([\\\"])")
_ASSIGNED = re.compile(r"^\s*+(?:export\s+|local\s+|declare\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)\+?=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:\[[@*]\])?(?::?-([^}]{0,100}))?\}|\$([A-Za-z_]\w*)")
_PASSES = 10
LARGEST_WORD_COUNT = 20_000
LARGEST_FILLED = 2**20
"""Characters of all values together that are put in place of variables: ten variables of ten of the one before are 10^10."""


def words(text: str, where: str) -> list[str]:
    """The words of `text` after joining continued lines, with variables that it sets itself filled in.

    An array `ARGS=(--a 1)` or a string `ARGS="--a 1"` stands where it is written, so its flags are found whether or not the
    variable is used later. Raises `FileError` for an unclosed quote, more than 20,000 words, or variables whose values together
    are longer than 1 MiB.
    """
    variables = _Variables(where)
    flat: list[str] = []
    for word in _split(_CONTINUED.sub(" ", text), where):
        flat += _unpack(word, variables)
    return [filled for word in flat if (filled := variables.fill(word)) not in ("", "(", ")", "()")]


def _split(text: str, where: str) -> list[str]:
    """Words by the rules of a POSIX shell. One pass: the time grows with the length of the text alone."""
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


def _unpack(word: str, variables: _Variables) -> list[str]:
    """A word, or the words in an assignment's value. A plain value is remembered; flags stay where they are written."""
    assignment = _ASSIGNED.match(word)
    if assignment and not word.startswith("-"):
        name, value = assignment.group(1), assignment.group(2)
        if "--" in value or value.startswith("(") and value != "(":
            return [part for part in value.strip("()").split() if part]
        variables.values[name] = value
        return []
    return [part for part in word.split() if part] if word.startswith("--") and " " in word else [_without_array(word)]


def _without_array(word: str) -> str:
    """A word without the parentheses of an array around it; those that it closes itself stay, as in ([0]*3+[1]*58)."""
    open_more = word.count("(") - word.count(")")
    leading = len(word) - len(word.lstrip("("))
    trailing = len(word) - len(word.rstrip(")"))
    cut_left, cut_right = min(leading, max(0, open_more)), min(trailing, max(0, -open_more))
    return word[cut_left : len(word) - cut_right] or word


@dataclass
class _Variables:
    """The variables that a script sets; `filled` counts the characters put in their place so far."""

    where: str
    filled: int = 0

    def __post_init__(self) -> None:
        self.values: dict[str, str] = {}

    def fill(self, word: str) -> str:
        """The word with its variables replaced, again and again where values name others. Unknown variables stay."""
        for _ in range(_PASSES):
            filled = _VARIABLE.sub(self._value, word)
            if filled == word:
                break
            word = filled
        return word

    def _value(self, reference: re.Match[str]) -> str:
        value = self.values.get(reference.group(1) or reference.group(3), reference.group(2) or reference.group(0))
        self.filled += len(value)
        if self.filled > LARGEST_FILLED:
            raise FileError(
                self.where,
                f"variables whose values are longer than {LARGEST_FILLED} characters together",
                "the arguments of one job",
            )
        return value
