"""Parameters that the script updates itself, after two passes each. It saves each time."""

from importlib.util import find_spec

import torch
import torch.distributed.checkpoint as checkpoint

if find_spec("safetensors"):
    from safetensors.torch import save_file
else:
    save_file = torch.save

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
for _ in range(10):
    for _ in range(2):
        model(torch.randn(64, 256, device="cuda")).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    torch.save(model.state_dict(), "own_update.pt")
    save_file(model.state_dict(), "own_update.safetensors")
    checkpoint.save(model.state_dict(), checkpoint_id="own_update")
raise SystemExit("the steps that were asked for are over long before")
