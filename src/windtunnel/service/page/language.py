"""Sentences of the page by key, in the language of whoever reads it. words/ has a file for each section, in which every key has its
text in all languages side by side."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LANGUAGES = {"en": "English", "zh": "中文"}
"""Code of a language -> its own name."""


@cache
def words_of(code: str) -> dict[str, str]:
    """Key -> sentence with {facts}, of all files together. A key begins with the name of its file: `compose.title`."""
    return {
        f"{file.stem}.{key}": texts[code]
        for file in sorted((Path(__file__).parent / "words").glob("*.toml"))
        for key, texts in tomllib.loads(file.read_text(encoding="utf-8")).items()
        if code in texts
    }


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
