"""`python -m windtunnel.fleet.agent.store_host PORT`: the store in which ranks meet, in a process that outlives each of them."""

from __future__ import annotations

import signal
import sys

import torch.distributed as dist

if __name__ == "__main__":
    store = dist.TCPStore("0.0.0.0", int(sys.argv[1]), is_master=True, wait_for_workers=False)
    while True:
        signal.pause()
