"""Sentences of the page by key, in the language of whoever reads it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module

LANGUAGES = {"en": "English", "zh": "中文"}
"""Code of a language -> its own name."""
PARTS = ("frame", "compose", "answer", "choose", "network", "serving", "trust", "run")
"""Files of words: those of the frame, and of each section."""


@cache
def words_of(code: str) -> dict[str, str]:
    """Key -> sentence with {facts}, of all parts together. A key begins with its part: `compose.title`."""
    found: dict[str, str] = {}
    for part in PARTS:
        found |= import_module(f"windtunnel.service.page.language.{code}_{part}").WORDS
    return found


@dataclass(frozen=True)
class Language:
    """The language of a reader."""

    code: str = "en"

    def say(self, key: str, **facts: object) -> str:
        """The sentence of a key with its facts. KeyError for a key that the language does not have."""
        return words_of(self.code)[key].format(**facts) if facts else words_of(self.code)[key]

    def find(self, key: str) -> str:
        """The same, or nothing for a key that the language does not have."""
        return words_of(self.code).get(key, "")


def language_of(code: str | None, accepted: str = "") -> Language:
    """The language that was picked, else the first that the browser accepts and the page has, else English."""
    if code in LANGUAGES:
        return Language(str(code))
    for wanted in accepted.lower().split(","):
        found = wanted.strip()[:2]
        if found in LANGUAGES:
            return Language(found)
    return Language()
