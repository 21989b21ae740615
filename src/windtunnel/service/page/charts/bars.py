"""Bars as markup: a stripe of parts with its table of names. Every text is escaped; colours are those of the static pages."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import escape

from windtunnel.service.page.figures import Piece


def draw_stripe(pieces: Sequence[Piece], label: str) -> str:
    """One bar from left to right; what is left of it stays empty. Shares are of the whole bar; more than 1 is cut."""
    whole = max(1.0, sum(piece.share for piece in pieces))
    inside = "".join(
        f'<i style="width:{100 * piece.share / whole:.3f}%;background:{piece.colour}" '
        f'title="{escape(piece.label)}: {escape(piece.value)}"></i>'
        for piece in pieces
    )
    return f'<div class="wt-stripe" role="img" aria-label="{escape(label)}">{inside}</div>'


def draw_parts(pieces: Sequence[Piece]) -> str:
    """A row for each part: colour, name, value, share, and a bar of its own."""
    most = max((piece.share for piece in pieces), default=1.0) or 1.0
    rows = "".join(
        f'<tr><td><i style="background:{piece.colour}"></i>{escape(piece.label)}</td><td class="n">{escape(piece.value)}</td>'
        f'<td class="n">{100 * piece.share:.1f} %</td><td class="bar"><i style="width:{100 * piece.share / most:.1f}%;'
        f'background:{piece.colour}"></i></td></tr>'
        for piece in pieces
    )
    return f'<table class="wt-parts"><tbody>{rows}</tbody></table>'
