"""What a replay is told beside the graph and the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from windtunnel.base.errors import SpecError
from windtunnel.base.fidelity import CLOSED, check_threads
from windtunnel.spec.machine.cluster import GPU

COMPUTE = ("trace", "roofline", "kernels")
CALLS = ("network", "trace")


@dataclass(frozen=True)
class ReplayOptions:
    """`compute`: a computation takes the time that the trace gives it; or its FLOPs and bytes at the peaks of the cluster's GPU
    where they are stated; or what windtunnel's kernels of its shape or bytes take there. `source`: the GPU that the trace was
    measured on, from which times are scaled; `calls`: a call takes what the network says, or the trace's time where that is stated;
    `seed`, `skip`, `threads`: of the engines; threads of packets change no result."""

    network: str = CLOSED
    compute: str = COMPUTE[0]
    calls: str = CALLS[0]
    source: GPU | None = None
    precision: str = "bf16"
    seed: int = 1
    skip: bool = False
    threads: int = 1

    def check(self) -> None:
        """SpecError for a word that is none of `COMPUTE` or `CALLS`, and for a wrong number of threads."""
        check_threads(self.threads)
        for name, value, allowed in (("--compute", self.compute, COMPUTE), ("--calls", self.calls, CALLS)):
            if value not in allowed:
                raise SpecError(name, value, ", ".join(allowed))
