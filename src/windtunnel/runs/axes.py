"""The parallel axis of a measured call: by the ranks of its group on the job's placement, else by the communicator's name."""

from __future__ import annotations

import re
from functools import cached_property

from windtunnel.base.comm import Comm
from windtunnel.base.errors import SpecError
from windtunnel.network.groups.shape import members
from windtunnel.predict.price.calibrated import axis_group
from windtunnel.spec import Job
from windtunnel.workload import Axis

_NAMES = (
    ("tp", r"tensor|model_parallel|mesh_tp|\btp\b|^tp$"),
    ("cp", r"context|mesh_cp|\bcp\b|ulysses|sequence_parallel"),
    ("ep", r"expert_model|expert_parallel|mesh_ep|\bep\b|deepep"),
    ("pp", r"pipeline|mesh_pp|\bpp\b|p2p"),
    ("dp", r"data|dp|fsdp|shard|replicate|zero"),
    ("world", r"embedding|world|default|model_and_|global"),
)
"""Words in the names that Megatron-LM, torchtitan and DeepSpeed give their communicators; the first that fits counts."""

ASKED = (Axis.TP, Axis.CP, Axis.EP, Axis.ETP, Axis.DP, Axis.SHARD, Axis.REPLICA, Axis.EXPERT_DP, Axis.NEAR, Axis.FAR, Axis.WORLD)


class AxisOf:
    """Axes of calls under the placement of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @cached_property
    def _by_ranks(self) -> dict[frozenset[int], str]:
        """Groups of more than one rank; where two axes have the same ranks the first of the list counts."""
        known: dict[frozenset[int], str] = {}
        for axis in ASKED:
            try:
                listed = members(self.job, axis)
            except SpecError:
                continue
            for row in listed.tolist():
                if len(set(row)) > 1:
                    known.setdefault(frozenset(row), axis_group(axis))
        return known

    def __call__(self, rank: int, ranks: tuple[int, ...], name: str, comm: Comm) -> str:
        """The group of axes of a call that `rank` makes in a communicator of `ranks`."""
        if comm is Comm.SEND_RECV and (len(ranks) <= 2 or self.job.plan.pp > 1 and not self._by_ranks.get(frozenset(ranks))):
            return "pp"
        if comm is Comm.ALL_TO_ALL and not name and len(ranks) == self.job.plan.ep > 1:
            return "ep"  # only experts exchange tokens all to all, whatever other axis has the same ranks
        named = next((axis for axis, pattern in _NAMES if re.search(pattern, name.lower())), None) if name else None
        if ranks and (known := self._by_ranks.get(frozenset(ranks))) is not None:
            return named if named is not None and self._is_ambiguous(ranks, named) else known
        return named or self._by_size(len(ranks))

    def _is_ambiguous(self, ranks: tuple[int, ...], axis: str) -> bool:
        """Whether the ranks are also those of another axis, so that the name decides."""
        plan = self.job.plan
        sizes = {
            "tp": plan.tp,
            "cp": plan.cp,
            "ep": plan.ep,
            "dp": self.job.dp * plan.cp,
            "pp": plan.pp,
            "world": self.job.cluster.gpus,
        }
        return sizes.get(axis) == len(ranks) or axis == "dp" and len(ranks) == self.job.dp

    def _by_size(self, size: int) -> str:
        plan = self.job.plan
        sizes = {"tp": plan.tp, "cp": plan.cp, "ep": plan.ep, "dp": self.job.dp * plan.cp}
        fitting = [axis for axis, ranks in sizes.items() if ranks == size and size > 1]
        return fitting[0] if len(fitting) == 1 else "dp"
