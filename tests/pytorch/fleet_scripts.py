"""Scripts of two ranks for the tests of the monitor, by name; forked from this process (`forked_ranks`). gloo on loopback.

This process imports torch and the monitor, and none of the modules that the monitor waits for.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))

from forked_ranks import serve  # noqa: E402

from windtunnel.fleet import watch  # noqa: E402


def rank() -> int:
    return int(os.environ["RANK"])


def train(folder: Path, model: nn.Module, steps: int, seed: int = 0) -> None:
    """Trains on random numbers of its own."""
    generator = torch.Generator().manual_seed(seed + rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        for _ in range(2):
            inputs = torch.randn(8, 16, generator=generator)
            nn.functional.cross_entropy(model(inputs), torch.randint(0, 4, (8,), generator=generator)).backward()
        optimizer.step()
        optimizer.zero_grad()


def layers() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def ddp(folder: Path) -> None:
    """DDP with several buckets; WATCHED says whether the monitor runs."""
    if os.environ.get("WATCHED") == "1":
        watch.start()
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb=0.001, find_unused_parameters=True)
    train(folder, model, 6)
    watch.stop()
    train(folder, model, 2)  # the reducer's group goes on without the monitor
    if rank() == 0:
        torch.save(model.module.state_dict(), folder / f"weights{os.environ.get('WATCHED')}.pt")


def late(folder: Path) -> None:
    """DDP that was made before the monitor started, and a call of the script's own; WATCHED says whether the monitor runs."""
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(layers(), find_unused_parameters=True)
    train(folder, model, 2)  # its buckets are settled
    if os.environ.get("WATCHED") == "1":
        watch.start()
    for _ in range(3):
        dist.broadcast(torch.ones(3), 0)
        train(folder, model, 1)
    watch.stop()
    train(folder, model, 1)
    if rank() == 0:
        torch.save(model.module.state_dict(), folder / f"weights{os.environ.get('WATCHED')}.pt")


def compiled(folder: Path) -> None:
    """Three steps of a module whose graph has collectives in it; BACKEND is torch.compile's."""
    import torch.distributed._functional_collectives as functional
    from torch._inductor import config

    config.cpp.vec_isa_ok = False  # no vectors: to find out which there are compiles eleven files
    watch.start()
    dist.init_process_group("gloo")
    model = layers()

    def loss(inputs: torch.Tensor) -> torch.Tensor:
        whole = functional.all_gather_tensor(model(inputs), 0, dist.group.WORLD)
        return functional.all_reduce(whole.sum(), "sum", dist.group.WORLD)

    graph = torch.compile(loss, backend=os.environ["BACKEND"], fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(3):
        with torch.no_grad():
            graph(torch.ones(8, 16))
        model(torch.ones(8, 16)).sum().backward()
        optimizer.step()
    watch.stop()
    with torch.no_grad():
        graph(torch.ones(8, 16))  # the graph goes on without the monitor


def calls(folder: Path) -> None:
    """Every kind of call once, in step 0."""
    dist.init_process_group("gloo")
    watch.start()
    other = 1 - rank()
    late = dist.new_group([0, 1])
    small, both = torch.ones(4), torch.ones(8)
    dist.all_reduce(small)
    dist.all_reduce(small, async_op=True, group=late).wait()
    dist.all_gather_into_tensor(both, small)
    dist.all_gather([torch.ones(4), torch.ones(4)], small)
    dist.broadcast(small, 0)
    dist.reduce(small, 0)
    dist.all_to_all_single(torch.ones(8), both)
    dist.reduce_scatter_tensor(small, both)
    dist.barrier()
    dist.all_gather_object([None, None], rank())
    if rank() == 0:
        dist.send(small, 1)
        dist.send(both, 1)
    else:
        dist.recv(small, 0)
        dist.recv(both, 0)
    operations = [dist.P2POp(dist.isend, small, other), dist.P2POp(dist.irecv, torch.ones(4), other)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    import torch.distributed._functional_collectives as functional

    functional.wait_tensor(functional.all_reduce(small, "sum", dist.group.WORLD))
    functional.all_gather_tensor(small, 0, late) + 0
    watch.step()
    watch.stop()


def sharded(folder: Path) -> None:
    """FSDP2 over a mesh with a name."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    watch.start()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    train(folder, fully_shard(layers(), mesh=mesh), 4)
    watch.stop()


def pipeline(folder: Path) -> None:
    """Two stages, 1F1B, four micro batches, three steps."""
    watch.start()
    dist.init_process_group("gloo")
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    part = nn.Linear(16, 16) if rank() == 0 else nn.Linear(16, 4)
    stage = PipelineStage(part, rank(), 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=nn.functional.cross_entropy)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    for _ in range(3):
        if rank() == 0:
            schedule.step(torch.randn(8, 16))
        else:
            schedule.step(target=torch.randint(0, 4, (8,)))
        optimizer.step()
        optimizer.zero_grad()
    watch.stop()


def hang(folder: Path) -> None:
    """Rank 1 never comes to the last all-reduce: the test stops it by a signal when it has said so."""
    watch.start(beat_seconds=0.05)
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(4))
    (folder / f"ready{rank()}").touch()
    if rank() == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(4))


def run(name: str, folder: str, variables: dict[str, str], store: str) -> None:
    """The script `name` with `variables` in its environment; its ranks meet at the file `store`."""
    world = int(os.environ["WORLD_SIZE"])
    os.environ.update(variables, LOCAL_RANK=str(rank()))
    torch.set_num_threads(1)
    joined = {"init_method": f"file://{store}", "rank": rank(), "world_size": world}
    dist.init_process_group = functools.partial(dist.init_process_group, **joined)
    scripts = {script.__name__: script for script in (ddp, late, compiled, calls, sharded, pipeline, hang)}
    scripts[name](Path(folder))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    import torch._inductor.compile_fx  # each rank that compiles would import it by itself

    torch.optim.AdamW([nn.Parameter(torch.zeros(1))])  # imports a second's worth of modules
    waited_for = {"torch.distributed.pipelining.stage", "torch.distributed.checkpoint"}
    assert not waited_for & set(sys.modules), "the monitor has to see scripts import these"
    serve({"run": run})
