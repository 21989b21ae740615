"""DistributedDataParallel of which one rank ends, or stands still: HOW says how, WHO which, AT in which step."""

import atexit
import ctypes
import os
import queue
import signal
import sys
import threading
import time

HOW, WHO, AT = os.environ["HOW"], int(os.environ["WHO"]), int(os.environ.get("AT", "6"))
RANK = int(os.environ["RANK"])
HIT = RANK == WHO
if HOW == "early" and HIT:
    import not_a_module  # noqa: F401

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

if HOW == "import" and HIT:
    import not_a_module  # noqa: F401


def load():
    if HOW == "raise":
        raise ValueError("tokenizer shard 17 is corrupt")
    if HOW == "segfault":
        ctypes.string_at(0)
    if HOW == "abort":
        os.abort()
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "term":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if HOW == "_exit":
        os._exit(9)
    if HOW == "exit":
        sys.exit(3)
    if HOW == "systemexit":
        raise SystemExit(4)
    if HOW == "caught":
        try:
            {}["vocab"]
        except KeyError:
            sys.exit(5)
    if HOW == "memory":
        with open(os.environ["MEMORY_GROUP"] + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
        hoard = [b"x" * (8 << 20) for _ in range(64)]
        sys.exit(f"{len(hoard)} x 8 MiB were not too much")
    if HOW == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if HOW == "loop":
        while True:
            pass


class Records(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        if HIT and index > AT * 4:
            if HOW == "worker":
                raise RuntimeError(f"record {index} is truncated")
            if HOW == "workerkill":
                os.kill(os.getpid(), signal.SIGKILL)
        return torch.randn(64)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.step = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), 0

    def forward(self, inputs):
        if HOW == "forward" and HIT and self.step >= AT:
            raise RuntimeError("activation has NaN")
        return self.layers(inputs)


def check(gradient):
    if HIT and model.step >= AT:
        raise ArithmeticError("gradient overflow")
    return gradient


def flush():
    raise OSError("cannot flush metrics")


def fill():
    for number in range(1000):
        if HIT and number >= AT:
            raise ValueError("bad record")
        ready.put(number)


def differ():
    """A call beside the training: other ranks make the same one, or another one."""
    if HOW == "operation":
        dist.all_reduce(torch.ones(7)) if HIT else dist.broadcast(torch.ones(3), 0)
    if HOW == "size":
        dist.all_reduce(torch.ones(7 if HIT else 3))
    if HOW == "root":
        dist.broadcast(torch.ones(3), 1 if HIT else 0)
    if HOW == "dtype":
        dist.all_reduce(torch.ones(7, dtype=torch.float64 if HIT else torch.float32))
    if HOW == "order":
        calls = [lambda: dist.all_reduce(torch.ones(7)), lambda: dist.broadcast(torch.ones(3), 0)]
        for call in reversed(calls) if HIT else calls:
            call()
    if HOW == "skip" and not HIT:
        dist.barrier()
    if HOW == "group":
        dist.all_reduce(torch.ones(5), group=other if HIT else None)


torch.set_num_threads(1)
dist.init_process_group("gloo")
other = dist.new_group(list(range(dist.get_world_size())))
model = Model()
if HOW == "hook":
    model.layers[2].weight.register_hook(check)
if HOW == "atexit" and HIT:
    atexit.register(flush)
ready = queue.Queue(2)
if HOW == "thread":
    threading.Thread(target=fill, name="prefetch", daemon=True).start()
net = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
batches = iter(torch.utils.data.DataLoader(Records(), batch_size=4, num_workers=int(HOW.startswith("worker"))))
for step in range(20):
    model.step = step
    if step == AT:
        if HIT and HOW == "return":
            break
        if HIT:
            load()
        differ()
    if HOW == "thread":
        ready.get()
    inputs = next(batches)
    time.sleep(0.02)
    net(inputs).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
