"""Networks that are no language models, in plain PyTorch, for `windtunnel import torch examples/modules/vision.py:NAME`.

Each function returns a module whose output is its loss, and the inputs of one micro batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))


def feed_forward(width: int, times: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, times * width), nn.GELU(), nn.Linear(times * width, width))


class Layer(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads), feed_forward(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Vision transformer (Dosovitskiy et al. 2020), mean pooling."""

    def __init__(self, width: int, depth: int, heads: int, patch: int, size: int, classes: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2) + self.position
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x).mean(1)).float(), labels)


def vit(width: int = 1024, depth: int = 24, heads: int = 16, patch: int = 16, size: int = 224, batch: int = 64):
    """ViT-L/16 by default."""
    inputs = torch.empty(batch, 3, size, size), torch.zeros(batch, dtype=torch.int64)
    return ViT(width, depth, heads, patch, size, 1000), inputs


class DiTLayer(nn.Module):
    """A diffusion transformer's layer: the condition sets scale, shift and gate (adaLN-Zero)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.attention, self.mlp = Attention(width, heads), feed_forward(width)
        self.condition = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.condition(c).unsqueeze(1).chunk(6, dim=-1)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    """Diffusion transformer (Peebles and Xie 2022) on latents of 4 channels."""

    def __init__(self, width: int, depth: int, heads: int, patch: int, size: int) -> None:
        super().__init__()
        self.width = width
        self.patch = nn.Conv2d(4, width, patch, patch)
        self.position = nn.Parameter(torch.zeros(1, (size // patch) ** 2, width))
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(1001, width)
        self.layers = nn.ModuleList([DiTLayer(width, heads) for _ in range(depth)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, patch * patch * 4)

    def forward(self, latents: Tensor, time: Tensor, label: Tensor, noise: Tensor) -> Tensor:
        x = self.patch(latents).flatten(2).transpose(1, 2) + self.position
        c = self.time(time) + self.classes(label)
        for layer in self.layers:
            x = layer(x, c)
        return F.mse_loss(self.out(self.norm(x)).float(), noise.float())


def dit(width: int = 1152, depth: int = 28, heads: int = 16, patch: int = 2, size: int = 32, batch: int = 32):
    """DiT-XL/2 at 256 x 256 pixels by default."""
    length = (size // patch) ** 2
    inputs = (
        torch.empty(batch, 4, size, size),
        torch.empty(batch, 256),
        torch.zeros(batch, dtype=torch.int64),
        torch.empty(batch, length, patch * patch * 4),
    )
    return DiT(width, depth, heads, patch, size), inputs


class Bottleneck(nn.Module):
    """A residual block of ResNet-50 (He et al. 2015)."""

    def __init__(self, inner: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        out = 4 * channels
        self.conv1, self.norm1 = nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv3, self.norm3 = nn.Conv2d(channels, out, 1, bias=False), nn.BatchNorm2d(out)
        self.short = None
        if stride > 1 or inner != out:
            self.short = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inner = [], 64
        for stage, depth in enumerate(depths):
            for place in range(depth):
                blocks.append(Bottleneck(inner, 64 * 2**stage, 2 if stage and place == 0 else 1))
                inner = 256 * 2**stage
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(inner, classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.stem(images))), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean((2, 3))).float(), labels)


def resnet(depth: int = 50, batch: int = 128, size: int = 224):
    inputs = torch.empty(batch, 3, size, size), torch.zeros(batch, dtype=torch.int64)
    return ResNet({26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}[depth], 1000), inputs


class Residual(nn.Module):
    """A convolutional block of a diffusion U-Net."""

    def __init__(self, inner: int, out: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inner), nn.Conv2d(inner, out, 3, 1, 1)
        self.norm2, self.conv2 = nn.GroupNorm(32, out), nn.Conv2d(out, out, 3, 1, 1)
        self.short = nn.Conv2d(inner, out, 1) if inner != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        return self.short(x) + self.conv2(F.silu(self.norm2(y)))


class UNet(nn.Module):
    """A U-Net (Ronneberger et al. 2015): what goes down is kept for the way up."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, channels[0], 3, 1, 1)
        pairs = list(zip(channels, channels[1:], strict=False))
        self.down = nn.ModuleList([Residual(a, b) for a, b in pairs])
        self.middle = Residual(channels[-1], channels[-1])
        self.up = nn.ModuleList([Residual(2 * b, a) for a, b in reversed(pairs)])
        self.out = nn.Conv2d(channels[0], 4, 3, 1, 1)

    def forward(self, latents: Tensor, noise: Tensor) -> Tensor:
        x, kept = self.stem(latents), []
        for block in self.down:
            kept.append(block(x))
            x = F.avg_pool2d(kept[-1], 2)
        x = self.middle(x)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], 1))
        return F.mse_loss(self.out(x).float(), noise.float())


def unet(batch: int = 16, size: int = 64):
    inputs = torch.empty(batch, 4, size, size), torch.empty(batch, 4, size, size)
    return UNet((128, 256, 512, 512)), inputs


class Encoder(nn.Module):
    """Whisper's encoder (Radford et al. 2022): two convolutions over a spectrogram, then transformer layers."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(80, width, 3, 1, 1), nn.Conv1d(width, width, 3, 2, 1)
        self.position = nn.Parameter(torch.zeros(1500, width))
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)

    def forward(self, sound: Tensor) -> Tensor:
        x = F.gelu(self.conv2(F.gelu(self.conv1(sound)))).transpose(1, 2) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def whisper_encoder(width: int = 1280, depth: int = 32, heads: int = 20, batch: int = 4):
    """Whisper large's encoder by default, over 30 seconds of sound."""
    return Encoder(width, depth, heads), (torch.empty(batch, 80, 3000),)
