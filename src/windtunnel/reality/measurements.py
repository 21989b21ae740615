"""The project's own copy of published measurements, and which families constants were fitted on (both in the catalogue)."""

from __future__ import annotations

import tomllib
from pathlib import Path

from windtunnel.base.errors import FileError

FOLDER = Path(__file__).resolve().parents[1] / "catalog" / "measurements"


LAYERS = FOLDER / "layers.csv"
"""Times of single layers; see `layers.py`."""


def tables() -> tuple[Path, ...]:
    """The CSV files of runs and of collectives in the catalogue, by name."""
    return tuple(sorted(path for path in FOLDER.glob("*.csv") if path != LAYERS))


Fitted = frozenset[tuple[str, str]]
"""(family, quantity) of rows that took part in a fit."""


def fitted_families(path: Path = FOLDER / "fitted.toml") -> Fitted:
    """What constants were fitted on, by family and quantity; all else is test only. `FileError` if the file is not as expected."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(str(path), str(error), "a readable TOML file") from None
    for quantity, names in data.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FileError(str(path), f"{quantity} = {names}", "for each quantity a list of families")
    if not data:
        raise FileError(str(path), "nothing", "for each quantity a list of families")
    return frozenset((name, quantity) for quantity, names in data.items() for name in names)
