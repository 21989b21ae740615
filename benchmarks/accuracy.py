"""Write docs/accuracy.md from the measurements in the catalogue, as `windtunnel validate --markdown docs/accuracy.md` does.

python benchmarks/accuracy.py [CSV ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.progress import Progress

from windtunnel.reality import validate
from windtunnel.reality.page.markdown import markdown

PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"


def main(paths: list[str]) -> None:
    """Validate and write the page."""
    with Progress() as bar:
        task = bar.add_task("validate")

        def show(done: int, total: int, row: str) -> None:
            bar.update(task, completed=done, total=total, description=row)

        report = validate(paths or None, progress=show)
    PAGE.write_text(markdown(report, "windtunnel validate --markdown"), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
