"""Attention of equal widths, with narrower values, in an order of the script's own, and grouped in 32 bits."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

TOKENS, HEADS = 64, 4
weight = torch.nn.Parameter(torch.ones((), device="cuda", dtype=torch.bfloat16))
optimizer = torch.optim.SGD([weight], lr=0.1)
step = torch.nn.Identity()


def heads(width, count=HEADS):
    return weight.expand(2, count, TOKENS, width)


for _ in range(9):
    step(weight)
    scaled_dot_product_attention(heads(128), heads(128), heads(128), is_causal=True).sum().backward()
    latent = heads(192), heads(192), heads(128)
    made = scaled_dot_product_attention(*latent, is_causal=True)
    assert made.shape[-1] == 128
    made.sum().backward()
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        scaled_dot_product_attention(*latent, is_causal=True).sum().backward()
    wide = heads(128).float(), heads(128, 1).float(), heads(128, 1).float()
    scaled_dot_product_attention(*wide, is_causal=True, enable_gqa=True).sum().backward()
    optimizer.step()
