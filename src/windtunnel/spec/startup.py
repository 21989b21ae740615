"""How communication groups are set up when a job starts."""

from __future__ import annotations

from typing import Literal

from windtunnel.spec.common import Noun


class Startup(Noun):
    """The key-value store through which ranks find each other, and the barrier after each group.

    `tcp`: PyTorch's TCPStore of one blocking thread; `tcp_libuv`: its event loop (default since PyTorch 2.4); `redis`: a store that
    does not block. `sync`: every rank of the job meets after every group (PyTorch before 2.1, Megatron-LM), or only its members.
    """

    store: Literal["tcp", "tcp_libuv", "redis"] = "tcp_libuv"
    sync: Literal["all_ranks", "members"] = "members"
