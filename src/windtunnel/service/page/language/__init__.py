"""The words of the page, a file for each section and language: `en_compose.py`, `zh_compose.py`, … each with a table `WORDS`."""

from windtunnel.service.page.language.words import LANGUAGES, PARTS, Language, words_of

__all__ = ["LANGUAGES", "PARTS", "Language", "words_of"]
