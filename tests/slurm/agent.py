"""A stand-in for an agent: writes a line with who it is, where and what it sees, and stays."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    line = {
        "node": given["--node"],
        "pid": os.getpid(),
        "driver": given["--driver"],
        "secret": Path(given["--secrets"]).read_text(),
        "token": os.environ.get("WINDTUNNEL_FLEET_TOKEN"),
        "host": os.environ.get("SLURMD_NODENAME", ""),
        "arguments": sys.argv,
    }
    Path(given["--folder"], f"is-{given['--node']}-{os.getpid()}.json").write_text(json.dumps(line))
    while True:
        time.sleep(0.2)
