"""A sheet as one self-contained page, or as a part of another one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.blocks import section_markup
from windtunnel.sheet.blocks import Figure, Sheet
from windtunnel.sheet.sentence import translate


def page(sheet: Sheet, command: str = "", language: str = "en") -> str:
    """The page's text; `command`: what makes it again."""
    subtitle = [translate(line, language) for line in sheet.subtitle]
    return frame.page(
        translate(sheet.title, language), subtitle, _cards(sheet, language), body(sheet, language), None, command, language=language
    )


def body(sheet: Sheet, language: str = "en") -> Markup:
    """The sections of a sheet that have something to show."""
    return Markup().join(
        section_markup(section.title, section.blocks, language) for section in sheet.sections if section.title and section.blocks
    )


def part_of_page(sheet: Sheet, language: str = "en") -> Markup:
    """Figures and sections, to stand in another page."""
    return frame.part("cards", _cards(sheet, language)) + body(sheet, language)


def _cards(sheet: Sheet, language: str) -> list[tuple[str, str, str]]:
    return [_card(figure, language) for figure in sheet.figures]


def _card(figure: Figure, language: str) -> tuple[str, str, str]:
    words = partial(translate, language=language)
    return words(figure.label), figure.within or figure.with_error(words), figure.mood


def write_page(sheet: Sheet, path: str | Path, command: str = "", language: str = "en", option: str = "--html") -> None:
    """The page into a file; FileError if its name does not end in .html, or it cannot be written."""
    frame.write_page(page(sheet, command, language), path, option)
