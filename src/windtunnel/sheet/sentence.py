"""Sentences that know their template and their facts, so that a drawer can say them in another language."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES = {"en": "English", "zh": "中文"}
"""Code of a language -> its own name. Any but English has a file beside this one, and may have a folder of
more: English text or template -> its translation."""

_LETTERS = re.compile(r"[^\W\d_]{2}")


class Sentence(str):
    """A text in English, made of a `template` with {names} and the `facts` that stand for them; facts may be sentences themselves.

    It is a plain string to whoever reads English alone.
    """

    template: str
    facts: dict[str, Any]

    def __new__(cls, template: str, /, **facts: Any) -> Sentence:
        made = super().__new__(cls, template.format(**facts) if facts else template)
        made.template, made.facts = template, facts
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_again, (self.template, self.facts)


def _make_again(template: str, facts: dict[str, Any]) -> Sentence:
    return Sentence(template, **facts)


def join(parts: Sequence[str], separator: str = ", ") -> Sentence:
    """Sentences behind each other; each keeps its own words. A separator with words stands between `{first}` and `{second}`."""
    if _LETTERS.search(separator) and len(parts) > 1:
        joined = Sentence("{first}" + separator + "{second}", first=parts[0], second=parts[1])
        return join((joined, *parts[2:]), separator) if len(parts) > 2 else joined
    names = [f"part{number}" for number in range(len(parts))]
    return Sentence(separator.join(f"{{{name}}}" for name in names), **dict(zip(names, parts, strict=True)))


def capital(text: str) -> Sentence:
    """The same with a capital at its begin."""
    template, facts = (text.template, text.facts) if isinstance(text, Sentence) else (text, {})
    return Sentence(template[:1].upper() + template[1:], **facts)


def quote(text: str) -> Sentence:
    """A text that no language translates: a name, or what a file says."""
    return Sentence("{text}", text=text)


@cache
def dictionary(language: str) -> dict[str, str]:
    """English text or template -> that of `language`, of its file and those of its folder. Empty for English. FileNotFoundError for
    a language that has no file."""
    if language == "en":
        return {}
    folder = Path(__file__).parent
    files = [folder / f"{language}.toml", *sorted((folder / language).glob("*.toml"))]
    return {name: text for file in files for name, text in tomllib.loads(file.read_text(encoding="utf-8")).items()}


def translate(text: str, language: str) -> str:
    """`text` in another language: a sentence by its template with translated facts, a plain text by itself; English where the
    language has no words for it."""
    if language == "en":
        return str(text)
    words = dictionary(language)
    if not isinstance(text, Sentence):
        return words.get(text, text)
    facts = {name: translate(fact, language) if isinstance(fact, str) else fact for name, fact in text.facts.items()}
    template = words.get(text.template, text.template)
    return template.format(**facts) if facts else template


def missing_words(text: str, language: str) -> set[str]:
    """Texts and templates with words that `language` lacks: those of `text` itself and of its facts that are sentences."""
    words = dictionary(language)
    template = text.template if isinstance(text, Sentence) else str(text)
    missing = {template} if template not in words and _LETTERS.search(re.sub(r"\{[^}]*\}", "", template)) else set()
    for fact in text.facts.values() if isinstance(text, Sentence) else ():
        if isinstance(fact, Sentence):
            missing |= missing_words(fact, language)
    return missing
