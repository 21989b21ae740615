"""A sheet whose part in the terminal is lines that never break, as plain text: the terminal's drawer takes longer to load."""

from __future__ import annotations

from windtunnel.sheet.blocks import Lines, Sheet
from windtunnel.sheet.sentence import translate


def plain_text(sheet: Sheet, language: str = "en") -> str | None:
    """The text; None where the terminal shows anything else."""
    shown = [block for section in sheet.sections for block in section.blocks if not block.detail]
    lines = [line for block in shown if isinstance(block, Lines) and block.mood == "code" for line in block.lines]
    plain = not (sheet.headline or sheet.cards) and all(isinstance(block, Lines) and block.mood == "code" for block in shown)
    return "\n".join(translate(line, language) for line in lines) if plain and lines else None
