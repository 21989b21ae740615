"""Which software ran: the framework's name from its column, the release from the date that the source carries.

The date is read from the citation itself (an arXiv number, a container tag, a month, a file name with a date); the catalogue's
newest version of that framework that is not younger than the date is used, else its oldest.
"""

from __future__ import annotations

import re

from windtunnel.reality.rows import TrainingRow

_MONTHS = {name: number for number, name in enumerate(
    ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1)}
_CONTAINER = re.compile(r"(?:ngc|nemo |bridge )(\d\d)\.(\d\d)|(\d\d)\.(\d\d)(?:\.\d+)? container", re.IGNORECASE)
_MONTH_YEAR = re.compile(r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?[ _-]?(20[12]\d)", re.IGNORECASE)
_ARXIV = re.compile(r"arxiv:(\d\d)(\d\d)\.\d{4,5}", re.IGNORECASE)
_YEAR_MONTH = re.compile(r"(?<!\d)(20[12]\d)-?(0[1-9]|1[0-2])(?!\d)")
_YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")


def software_date(row: TrainingRow) -> tuple[int, int] | None:
    """(year, month) that the row's source names, or None. A year alone counts as its middle."""
    text = row.source or ""
    if found := _CONTAINER.search(text):
        year, month = (part for part in found.groups() if part is not None)
        return 2000 + int(year), int(month)
    if found := _MONTH_YEAR.search(text):
        return int(found.group(2)), _MONTHS[found.group(1).lower()]
    if found := _ARXIV.search(text):
        return 2000 + int(found.group(1)), max(1, min(12, int(found.group(2))))
    if found := _YEAR_MONTH.search(text):
        return int(found.group(1)), int(found.group(2))
    if found := _YEAR.search(text):
        return int(found.group(1)), 6
    return None
