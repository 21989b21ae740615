"""A small Llama trained with DDP by plain PyTorch, as examples/jobs/tiny-llama.toml describes it. On CPUs, with gloo:

OMP_NUM_THREADS=1 windtunnel fleet run --dir out/fleet -- torchrun --nproc-per-node 8 examples/training/fleet_llama.py --steps 30

--backward, --forward, --optimizer and --between take a share: so much longer each step's section is made (0.2: 20 %), by work
that is done again.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WIDTH, HEADS, KV_HEADS, INNER, VOCAB, LAYERS = 256, 8, 4, 704, 4096, 4


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` (batch, heads, seq, dim) turned by its positions' angles."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Layer(nn.Module):
    """A decoder layer: (batch, seq, WIDTH) -> the same."""

    def __init__(self) -> None:
        super().__init__()
        self.dim = WIDTH // HEADS
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.q, self.o = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * self.dim, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * self.dim, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, seq, _ = x.shape
        y = self.norm1(x)
        q, k, v = (part(y).view(batch, seq, -1, self.dim).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, seq, WIDTH))
        y = self.norm2(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """(batch, seq) tokens and labels -> mean loss."""

    def __init__(self, seq: int, again: dict[str, float]) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.logits = nn.Linear(WIDTH, VOCAB, bias=False)
        self.again = again
        if again["backward"]:
            self.words.weight.register_hook(self._longer)  # the last gradient: what comes here ends the backward later
        frequency = 10000.0 ** (-torch.arange(0, WIDTH // HEADS, 2) / (WIDTH // HEADS))
        angle = torch.outer(torch.arange(seq), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        began = time.thread_time()
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        loss = functional.cross_entropy(self.logits(self.norm(x)).float().view(-1, VOCAB), labels.reshape(-1))
        work_on(self.again["forward"] * (time.thread_time() - began))
        if self.again["backward"]:
            loss.register_hook(self._begin_backward)
        return loss

    def _begin_backward(self, gradient: Tensor) -> None:
        self._began = time.thread_time()

    def _longer(self, gradient: Tensor) -> None:
        work_on(self.again["backward"] * (time.thread_time() - self._began))


def work_on(seconds: float) -> None:
    """Multiplies matrices for so much processor time of this thread."""
    end, x = time.thread_time() + seconds, torch.ones(64, 64)
    while time.thread_time() < end:
        x = (x @ x) * 1e-3


class ClippingAdamW(torch.optim.AdamW):
    """AdamW over gradients that it clips first; an update takes `again` longer."""

    again = 0.0

    def step(self, closure: Any = None) -> Any:
        """One update."""
        began = time.thread_time()
        torch.nn.utils.clip_grad_norm_([one for group in self.param_groups for one in group["params"]], 1.0)
        done = super().step(closure)
        work_on(self.again * (time.thread_time() - began))
        return done


def main() -> None:
    """Trains on random tokens; rank 0 prints the median seconds of a step."""
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--micro-batch", type=int, default=2)
    options.add_argument("--seq", type=int, default=256)
    for section in ("forward", "backward", "optimizer", "between"):
        options.add_argument(f"--{section}", type=float, default=0.0)
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Llama(given.seq, vars(given)), bucket_cap_mb=1024, gradient_as_bucket_view=True)  # one bucket
    optimizer = ClippingAdamW(model.parameters(), lr=1e-4, fused=True)
    optimizer.again = given.optimizer
    torch.manual_seed(dist.get_rank())
    times = []
    for _ in range(given.steps):
        began, worked = time.perf_counter(), time.thread_time()
        tokens = torch.randint(0, VOCAB, (given.micro_batch, given.seq + 1))
        loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        work_on(given.between * (time.thread_time() - worked))
        times.append(time.perf_counter() - began)
    if dist.get_rank() == 0:
        print(f"{sorted(times)[len(times) // 2] * 1e3:.1f} ms a step")
    dist.destroy_process_group()
    time.sleep(1.0)  # PyTorch 2.13 aborts a process that ends while a thread of gloo still lets go of the last tensor


if __name__ == "__main__":
    main()
