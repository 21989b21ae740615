"""Host time of a transformer block under PyTorch's fully_shard (FSDP2): `host.layer` of catalog/frameworks/torchtitan.toml.

    python benchmarks/fsdp_host.py

Needs PyTorch's build for CPUs. Tensors are tiny, so that their kernels take nothing; calls go to a process group that does nothing.
A block's time is that of 12 blocks less that of 4, over 8: the least of 25 steps, of the thread alone. Operators are those that
reach the dispatcher.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from windtunnel.capture.presets import HEADS, TOKENS, WIDTH, LlamaStack

RANKS, FEW, MANY, STEPS = 8, 4, 12, 25


class Counter(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return op(*args, **(kwargs or {}))


def measure(blocks: int, sharded: bool) -> tuple[float, float, int, int]:
    """Seconds and operators of `blocks` blocks, forward and backward."""
    model = LlamaStack(blocks)
    if sharded:
        mesh, policy = init_device_mesh("cpu", (RANKS,)), MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for part in (*model.blocks, model):
            fully_shard(part, mesh=mesh, mp_policy=policy)
    angles = torch.polar(*(torch.ones(TOKENS, WIDTH // HEADS // 2),) * 2)
    x = torch.randn(1, TOKENS, WIDTH)
    times = []
    for _ in range(STEPS):
        begin = time.thread_time()
        y = model(x, angles)
        middle = time.thread_time()
        y.sum().backward()
        times.append((middle - begin, time.thread_time() - middle))
    with Counter() as ahead:
        y = model(x, angles)
    with Counter() as back:
        y.sum().backward()
    return min(each[0] for each in times), min(each[1] for each in times), ahead.count, back.count


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    print("block of           forward us  backward us  operators")
    for sharded in (False, True):
        few, many = measure(FEW, sharded), measure(MANY, sharded)
        forward, backward, ahead, back = ((more - less) / (MANY - FEW) for more, less in zip(many, few, strict=True))
        name = "fully_shard" if sharded else "plain PyTorch"
        print(f"{name:<18} {1e6 * forward:>10.0f} {1e6 * backward:>12.0f}  {ahead:.0f} and {back:.0f}")


if __name__ == "__main__":
    main()
