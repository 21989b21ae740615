"""A model of 150 GB in fp32 that is built on the host, under a limit of 3 GiB, and moved to the device in 16 bits."""

import resource
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn

WIDTH, LAYERS, LIMIT = 32768, 35, 3 << 30
resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))  # of what the process may write and does not share
try:
    np.empty(LIMIT, np.uint8)
except MemoryError:
    print("an array of 3 GiB is refused")
else:
    raise SystemExit("the limit does not hold")
model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
model = model.to(torch.bfloat16).cuda()
for parameter in list(model.parameters())[:-1]:
    parameter.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(8, WIDTH, device="cuda", dtype=torch.bfloat16)).float().mean().backward()
    optimizer.step()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()  # Pss counts a page that is mapped many times once
    print("host memory, KiB:", next(line.split()[1] for line in lines if line.startswith("Pss:")), flush=True)
