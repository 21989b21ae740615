"""How many plans a second the bounds of a search take, on wide spaces; asserts nothing.

    python benchmarks/search_bounds.py [gpt3|deepseek]

CPU seconds of one core, cells included: GPT-3 175B on 1,024 A100 and DeepSeek-V3 on 2,048 H800, with every degree, schedule,
layout, micro batch, recompute, sharding and overlap open.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from windtunnel.search.bound.bounds import bounds
from windtunnel.search.space import EVEN, LIGHT_ENDS, LIGHT_LAST, WITH_TP, Space
from windtunnel.spec import load_job

FLAGS = (False, True)
OVERLAPS: dict[str, tuple[Any, ...]] = {f"runtime.overlap_{name}": FLAGS for name in ("grad_reduce", "param_gather", "p2p")}
COMMON: dict[str, tuple[Any, ...]] = OVERLAPS | {
    "plan.tp": (1, 2, 4, 8),
    "plan.cp": (1, 2),
    "plan.recompute": ("none", "selective", "full"),
    "plan.stages": (EVEN, LIGHT_LAST, LIGHT_ENDS),
    "plan.sharding": ("none", "zero1"),
}
SPACES: dict[str, tuple[str, list[str], dict[str, tuple[Any, ...]]]] = {
    "gpt3": (
        "gpt3-175b-64",
        ["cluster.gpus=1024", "plan.global_batch=1536"],
        COMMON
        | {
            "plan.tp": (1, 2, 4, 8, 16),
            "plan.pp": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48),
            "plan.vpp": (1, 2, 3, 4, 6, 12),
            "plan.micro_batch": (1, 2, 3, 4, 6, 8),
            "plan.sequence_parallel": FLAGS,
            "plan.schedule": ("auto", "gpipe", "breadth-first", "zb-h1", "zb-h2"),
            "runtime.overlap_tp": FLAGS,
        },
    ),
    "deepseek": (
        "deepseek-v3-2048xh800",
        [],
        COMMON
        | {
            "plan.pp": (1, 2, 4, 8, 16, 32),
            "plan.vpp": (1, 2, 4),
            "plan.ep": (1, 2, 4, 8, 16, 32, 64, 128),
            "plan.etp": (1, 2),
            "plan.micro_batch": (1, 2, 4),
            "plan.sequence_parallel": (WITH_TP,),
            "plan.schedule": ("auto", "zb-h1", "dualpipe", "dualpipev", "zbv"),
        },
    ),
}


def main(names: list[str]) -> None:
    for name in names or list(SPACES):
        source, overrides, fields = SPACES[name]
        space = Space(load_job(source, overrides), fields)
        begun = time.process_time()
        columns = space.columns()
        least = bounds(columns)
        seconds = time.process_time() - begun
        count = len(columns)
        print(
            f"{name}: {space.size:,} combinations, {count:,} plans, {least.cells:,} cells, {seconds:.1f} CPU s: "
            f"{count / seconds:,.0f} plans/s"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
