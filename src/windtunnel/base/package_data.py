"""Where the package's own data lie."""

from __future__ import annotations

from pathlib import Path

CATALOG = Path(__file__).resolve().parents[1] / "catalog"
"""The catalogue: facts with their sources, one folder a kind."""
