"""Lets the unit tests import the helpers that lie beside them (`report_fixture`, `trace_reader`)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
