"""Measured runs: where the time of their steps went, compared with a prediction, calibrated, and changed.

Names are imported on first use. `show` is `windtunnel runs show`; `compare_fleet`, `fleet_run` (incidents), `replay_fleet`,
`replay_job` and `expected_options` are what `windtunnel fleet` needs a prediction for.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
