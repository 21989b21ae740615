"""The project's own copy of published measurements, and which families constants were fitted on (both in the catalogue)."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import RootModel, ValidationError

from windtunnel.base.errors import FileError
from windtunnel.base.files import CATALOG

FOLDER = CATALOG / "measurements"


LAYERS = FOLDER / "layers.csv"
"""Times of single layers; see `layers.py`."""

ENERGY = FOLDER / "energy.csv"
"""Power and energy of nodes; see `energy.py`."""

POWER_CAPS = FOLDER / "power_caps.csv"
"""Runs under power caps; see `power_caps.py`."""

COMMANDS = FOLDER / "commands.csv"
"""Runs by their launch lines; see `commands.py`."""

OTHERS = (LAYERS, ENERGY, POWER_CAPS, COMMANDS)
"""Tables with columns of their own."""


def tables() -> tuple[Path, ...]:
    """The CSV files of runs and of collectives in the catalogue, by name."""
    return tuple(sorted(path for path in FOLDER.glob("*.csv") if path not in OTHERS))


Fitted = frozenset[tuple[str, str]]
"""(family, quantity) of rows that took part in a fit."""

FITTED_FILE = FOLDER / "fitted.toml"


class _FittedFile(RootModel[dict[str, list[str] | dict[str, list[str]]]]):
    """For each quantity a list of families; under `in_view` the same for families whose rules were settled with them in view."""


def fitted_families(path: Path = FITTED_FILE) -> Fitted:
    """What constants were fitted on, by family and quantity; all else is test only. `FileError` if the file is not as expected."""
    return frozenset((name, quantity) for quantity, names in _read(path).items() if isinstance(names, list) for name in names)


def families_in_view(path: Path = FITTED_FILE) -> Fitted:
    """Families of no fit on which a publication's rule was settled with the rows in view. `FileError` as `fitted_families`."""
    tables = _read(path).get("in_view", {})
    if not isinstance(tables, dict):
        raise FileError(str(path), "in_view", "a table of quantities")
    return frozenset((name, quantity) for quantity, names in tables.items() for name in names)


def _read(path: Path) -> dict[str, list[str] | dict[str, list[str]]]:
    try:
        data = _FittedFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))).root
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(str(path), str(error), "a readable TOML file") from None
    except ValidationError as error:
        where = str(error.errors()[0]["loc"][0])
        raise FileError(str(path), where, "for each quantity a list of families") from None
    if not data:
        raise FileError(str(path), "nothing", "for each quantity a list of families")
    return data
