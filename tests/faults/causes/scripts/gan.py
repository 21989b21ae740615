"""A generator and a discriminator, each with DDP and an optimizer of its own, in every step."""

import torch
import torch.distributed as dist
from common import RANK, STEPS, Layer, Samples, between_steps, has, work_on_device
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
generator = DDP(nn.Sequential(Layer(32), nn.Linear(32, 64)))
discriminator = DDP(nn.Sequential(Layer(64), nn.Linear(64, 1)), broadcast_buffers=False)
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
loader = torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=0)
for step, real in enumerate(loader):
    if step == STEPS:
        break
    noise = torch.randn(8, 32)
    with torch.no_grad():
        fake = generator(noise)
    of_discriminator.zero_grad()
    scores = discriminator(torch.cat([real, fake]))
    (scores[8:].mean() - scores[:8].mean()).backward()
    of_discriminator.step()
    for parameter in discriminator.parameters():
        parameter.data.clamp_(-0.1, 0.1)
    of_generator.zero_grad()
    made = generator(torch.randn(8, 32))
    if has("loss"):  # a perceptual loss that is slow on this rank
        work_on_device(0.03)
    (-made.mean()).backward()
    of_generator.step()
    between_steps()
if RANK == 0:
    print("done")
dist.destroy_process_group()
