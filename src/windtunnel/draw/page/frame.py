"""Shared by pages: jinja2 templates with autoescape, so that no text of a job can become markup.

The templates lie in `assets/`: `page.html.jinja` is the frame, `parts.html.jinja` has sections, tables, bars and lists as macros.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from windtunnel.base.errors import FileError
from windtunnel.draw.page.charts import ink_on
from windtunnel.sheet.sentence import translate

_ASSETS = Path(__file__).resolve().parent / "assets"

Cell = tuple[str, float | None]
"""Text and, in number columns, the value to sort by."""


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(_ASSETS)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["ink_on"] = ink_on
    return made


def part(name: str, *arguments: Any) -> Markup:
    """The macro `name` of parts.html.jinja with its arguments; text among them is escaped."""
    markup: Markup = getattr(_environment().get_template("parts.html.jinja").module, name)(*arguments)
    return markup


def section(title: str, body: Markup) -> Markup:
    """A titled part of a page."""
    return part("section", title, body)


def asset(name: str) -> Markup:
    """A file of `assets/` that the project wrote: style or script."""
    return Markup((_ASSETS / name).read_text(encoding="utf-8"))


def page(
    title: str,
    subtitle: Sequence[str],
    cards: Sequence[tuple[str, str, str]],
    body: Markup,
    made_by: str = "",
    more_script: str = "",
    reload: float = 0.0,
    language: str = "en",
) -> str:
    """A whole page. `cards`: (name, value, mood: "", good or bad); `made_by`: how it was made.

    `more_script`: a further script of `assets/`, of a drawing; `reload`: seconds after which the page loads itself again.
    """
    script = asset("page.js")
    if more_script:
        script += asset(more_script)
    return _environment().get_template("page.html.jinja").render(
        title=title,
        subtitle=subtitle,
        cards=cards,
        body=body,
        style=asset("page.css"),
        script=script,
        version=version("windtunnel"),
        made_by=made_by,
        reload=round(reload),
        language=language,
        theme=translate("light / dark", language),
    ) + "\n"  # fmt: skip


def embed(data: Mapping[str, Any]) -> str:
    """JSON of what a drawing tells, for an attribute."""
    return json.dumps(data, allow_nan=False, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def told_script(name: str, data: Mapping[str, Any]) -> Markup:
    """What the script of a drawing reads, as an element with that id."""
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, _embed_json(data))


def _embed_json(data: Mapping[str, Any]) -> Markup:
    """JSON that cannot close the script element around it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), sort_keys=True)
    for raw, safe in (("&", "\\u0026"), ("<", "\\u003c"), (">", "\\u003e"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029")):
        text = text.replace(raw, safe)
    return Markup(text)


def check_page(path: str | Path, option: str = "--html") -> None:
    """FileError if the name of a page does not end in .html."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise FileError(option, str(path), "a name that ends in .html")


def write_page(text: str, path: str | Path, option: str = "--html") -> None:
    """`text` into the page `path`; FileError if its name does not end in .html, or it cannot be written."""
    check_page(path, option)
    try:
        Path(path).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise FileError(option, str(path), "a file that can be written", f"{error.strerror}.") from error
