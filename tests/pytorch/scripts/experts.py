"""A mixture by hand: a router chooses 2 of 8 experts for each token, tokens travel to them and back, on up to eight ranks."""

import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

TOKENS, WIDTH, EXPERTS, CHOSEN = 256, 128, 8, 2


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.expert = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        world = dist.get_world_size(group)
        scores, experts = self.router(x).softmax(-1).topk(CHOSEN, dim=-1)
        order = experts.flatten().argsort(stable=True)
        tokens = x.repeat_interleave(CHOSEN, 0)[order]
        counts = torch.bincount(experts.flatten(), minlength=EXPERTS)
        assert torch.equal(torch.histc(experts.flatten(), EXPERTS, 0, EXPERTS - 1), counts)  # torchtitan's way
        sent = counts.view(world, -1).sum(1)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        there, back = sent.tolist(), received.tolist()
        arrived = dist_nn.all_to_all_single(tokens.new_empty(sum(back), WIDTH), tokens, back, there, group=group)
        made = dist_nn.all_to_all_single(torch.empty_like(tokens), self.expert(arrived), there, back, group=group)
        result = torch.zeros_like(x).index_add(0, order // CHOSEN, made * scores.flatten()[order, None])
        assert torch.isfinite(result).all()
        return x + result


dist.init_process_group("nccl")
group, _ = dist.new_subgroups(min(dist.get_world_size(), EXPERTS))
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(Mixture().cuda(), device_ids=[int(os.environ["LOCAL_RANK"])])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(TOKENS, WIDTH, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
