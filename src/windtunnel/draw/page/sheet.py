"""A sheet as one self-contained page, or as a part of another one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeGuard

from markupsafe import Markup

from windtunnel.draw.page import frame
from windtunnel.draw.page.blocks import SCRIPTED, section_markup
from windtunnel.sheet.blocks import Block, Figure, Picture, Sheet
from windtunnel.sheet.sentence import translate


def page(sheet: Sheet, command: str = "", language: str = "en", reload: float = 0.0) -> str:
    """The page's text; `command`: what makes it again; `reload`: seconds after which it loads itself again, 0 never."""
    subtitle = [translate(line, language) for line in sheet.subtitle]
    scripts = [SCRIPTED[block.painter] for section in sheet.sections for block in section.blocks if _is_scripted(block)]
    return frame.page(
        translate(sheet.title, language), subtitle, _cards(sheet, language), body(sheet, language), command,
        scripts[0] if scripts else "", reload, language,
    )  # fmt: skip


def _is_scripted(block: Block) -> TypeGuard[Picture]:
    return isinstance(block, Picture) and block.painter in SCRIPTED


def body(sheet: Sheet, language: str = "en") -> Markup:
    """The sections of a sheet that have something to show."""
    return Markup().join(
        section_markup(section.title, section.blocks, language) for section in sheet.sections if section.title and section.blocks
    )


def part_of_page(sheet: Sheet, language: str = "en") -> Markup:
    """Figures and sections, to stand in another page: without drawings that need a script of their own."""
    sections = (
        replace(section, blocks=tuple(block for block in section.blocks if not _is_scripted(block))) for section in sheet.sections
    )
    sheet = replace(sheet, sections=tuple(sections))
    return frame.part("cards", _cards(sheet, language)) + body(sheet, language)


def _cards(sheet: Sheet, language: str) -> list[tuple[str, str, str]]:
    return [_card(figure, language) for figure in sheet.figures]


def _card(figure: Figure, language: str) -> tuple[str, str, str]:
    words = partial(translate, language=language)
    return words(figure.label), figure.within or figure.with_error(words), figure.mood


def write_page(
    sheet: Sheet, path: str | Path, command: str = "", language: str = "en", option: str = "--html", reload: float = 0.0
) -> None:
    """The page into a file; FileError if its name does not end in .html, or it cannot be written."""
    frame.write_page(page(sheet, command, language, reload), path, option)
