"""Packages of one module that add a member to a registry, as a package of one's own does."""

from __future__ import annotations

import os
from pathlib import Path


def example(page: str) -> str:
    """The Python that a page of docs/extend/ shows: the toys are its worked examples."""
    text = (Path(__file__).parents[2] / "docs" / "extend" / f"{page}.md").read_text(encoding="utf-8")
    return text.split("```python\n")[1].split("```")[0]


def with_package(folder: Path, group: str, text: str, name: str = "toy", attribute: str = "TOY") -> dict[str, str]:
    """Writes a package of the module `text` into a folder, and returns the environment in which a process finds its member `name`
    of a group."""
    module = f"toys_of_{group}"
    (folder / f"{module}.py").write_text(text, encoding="utf-8")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        f"[windtunnel.{group}]\n{name} = {module}{attribute and ':' + attribute}\n", encoding="utf-8"
    )
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
