"""A mixture whose tokens travel by DeepEP, as its documentation writes it: layout, dispatch, combine, and both again backward."""

import os
import sys

import torch
import torch.distributed as dist
from deep_ep import Buffer

TOKENS, WIDTH, EXPERTS, CHOSEN = 256, 128, 8, 2
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
group = dist.group.WORLD
Buffer.set_num_sms(24)


def hidden_bytes(x):
    return x.size(1) * max(x.element_size(), 2)


def get_buffer(x):
    num_nvl_bytes, num_rdma_bytes = 0, 0
    for config in (Buffer.get_dispatch_config(group.size()), Buffer.get_combine_config(group.size())):
        num_nvl_bytes = max(config.get_nvl_buffer_size_hint(hidden_bytes(x), group.size()), num_nvl_bytes)
        num_rdma_bytes = max(config.get_rdma_buffer_size_hint(hidden_bytes(x), group.size()), num_rdma_bytes)
    return Buffer(group, num_nvl_bytes, num_rdma_bytes)


class Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, experts, weights):
        per_rank, per_node, per_expert, there, before = buffer.get_dispatch_layout(experts, EXPERTS, async_finish=True)
        out, kept, kept_weights, counts, ctx.handle, event = buffer.dispatch(
            x, topk_idx=experts, topk_weights=weights, num_tokens_per_rank=per_rank, num_tokens_per_rdma_rank=per_node,
            is_token_in_rank=there, num_tokens_per_expert=per_expert, previous_event=before, async_finish=True,
            allocate_on_comm_stream=True,
        )  # fmt: skip
        event.current_stream_wait()
        assert len(counts) == EXPERTS // group.size()
        assert sum(counts) == TOKENS * CHOSEN
        ctx.mark_non_differentiable(kept)
        return out, kept, kept_weights, torch.tensor(counts), ctx.handle

    @staticmethod
    def backward(ctx, grad, _, grad_weights, *__):
        grad, grad_weights, event = buffer.combine(grad, ctx.handle, topk_weights=grad_weights, async_finish=True)
        event.current_stream_wait()
        return grad, None, grad_weights


class Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, handle):
        ctx.handle = handle
        out, _, event = buffer.combine(x, handle, async_finish=True)
        event.current_stream_wait()
        return out

    @staticmethod
    def backward(ctx, grad):
        grad, _, _, _, _, event = buffer.dispatch(grad.contiguous(), handle=ctx.handle, async_finish=True)
        event.current_stream_wait()
        return grad, None


router = torch.nn.Linear(WIDTH, EXPERTS, bias=False, device="cuda", dtype=torch.bfloat16)
expert = torch.nn.Linear(WIDTH, WIDTH, bias=False, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()], lr=0.1)
x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
buffer = get_buffer(x)
if "low" in sys.argv:
    rooms = Buffer.get_low_latency_rdma_size_hint(TOKENS, WIDTH, group.size(), EXPERTS)
    buffer = Buffer(group, 0, rooms, low_latency_mode=True, num_qps_per_rank=EXPERTS // group.size())
for _ in range(4):
    scores, experts = router(x).softmax(-1).topk(CHOSEN, dim=-1)
    if "low" in sys.argv:
        (arrived, scales), counts, handle, event, hook = buffer.low_latency_dispatch(
            x.detach(), experts, TOKENS, EXPERTS, async_finish=False, return_recv_hook=True
        )
        hook()
        assert arrived.shape == (EXPERTS // group.size(), TOKENS * group.size(), WIDTH)
        assert arrived.dtype == torch.float8_e4m3fn
        made = expert(arrived.to(torch.bfloat16))
        out, event, hook = buffer.low_latency_combine(made, experts, scores.float(), handle, return_recv_hook=True)
        hook()
        loss = (out * scores.sum(-1, keepdim=True)).float().mean() + made.float().mean()
    else:
        arrived, kept, weights, counts, handle = Dispatch.apply(x, experts, scores.float())
        made = expert(arrived) * weights.sum(-1, keepdim=True).to(torch.bfloat16)
        loss = Combine.apply(made, handle).float().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
