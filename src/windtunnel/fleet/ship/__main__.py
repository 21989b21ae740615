"""`python -m windtunnel.fleet.ship FOLDER URL [SECONDS]`: the shipper without the start-up time of the command line. SECONDS: to
wait for new rings after all ranks have ended; inf: until SIGTERM.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from windtunnel.base.errors import WindtunnelError
from windtunnel.fleet.ship.shipper import ShipPolicy, ship
from windtunnel.fleet.wire.timers import apply_timers


def main(arguments: list[str]) -> int:
    if len(arguments) not in (2, 3):
        print("usage: python -m windtunnel.fleet.ship FOLDER URL [SECONDS]", file=sys.stderr)
        return 2
    try:
        policy = apply_timers(ShipPolicy(), "ship")
        policy = replace(policy, linger=float(arguments[2])) if len(arguments) == 3 else policy
        ship(Path(arguments[0]), arguments[1], policy, token=os.environ.get("WINDTUNNEL_FLEET_TOKEN") or None)
    except WindtunnelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
