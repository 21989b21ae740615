"""Parameters that the script updates itself, after two passes each."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
for _ in range(10):
    for _ in range(2):
        model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
raise SystemExit("the steps that were asked for are over long before")
