"""A model of 150 GB in fp32 that is built on the host, and moved to the device in 16 bits, as many fine-tuning scripts do."""

from pathlib import Path

import torch
import torch.nn as nn

WIDTH, LAYERS = 32768, 35
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
