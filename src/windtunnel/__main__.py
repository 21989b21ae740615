"""`python -m windtunnel`."""

from __future__ import annotations

import sys

from windtunnel.cli import main

sys.exit(main())
