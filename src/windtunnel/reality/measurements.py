"""The project's own copy of published measurements, and which families constants were fitted on (both in the catalogue)."""

from __future__ import annotations

import tomllib
from pathlib import Path

from windtunnel.base.errors import FileError

FOLDER = Path(__file__).resolve().parents[1] / "catalog" / "measurements"


def tables() -> tuple[Path, ...]:
    """The CSV files of the catalogue, by name."""
    return tuple(sorted(FOLDER.glob("*.csv")))


def fitted_families(path: Path = FOLDER / "fitted.toml") -> frozenset[str]:
    """Families whose rows took part in a fit of constants; all others are test only. `FileError` if the file is not as expected."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FileError(str(path), str(error), "a readable TOML file") from None
    names = data.get("families")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FileError(str(path), names, "`families = [...]`, a list of names")
    return frozenset(names)
