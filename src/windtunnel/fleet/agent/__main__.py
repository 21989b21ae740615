"""`python -m windtunnel.fleet.agent --driver HOST:PORT --node NAME --secrets FILE [--folder RUN]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from windtunnel.base.errors import WindtunnelError
from windtunnel.fleet.agent.agent import Agent
from windtunnel.fleet.wire.secrets import VARIABLE, read_secrets


def main() -> int:
    """Runs until the driver releases the agent. SIGTERM ends only the agent: its ranks continue, and the next agent adopts them."""
    parser = argparse.ArgumentParser("python -m windtunnel.fleet.agent")
    parser.add_argument("--driver", required=True, help="HOST:PORT or unix:PATH")
    parser.add_argument("--node", required=True)
    parser.add_argument("--secrets", default=os.environ.get(VARIABLE, ""), help=f"its file; otherwise ${VARIABLE}")
    parser.add_argument("--folder", type=Path, default=Path("out/fleet/job"), help="of the run")
    given = parser.parse_args()
    try:
        agent = Agent(given.node, given.driver, read_secrets(Path(given.secrets)), given.folder.absolute())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(agent.serve())
    except WindtunnelError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
