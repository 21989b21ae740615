"""DeepEP's Buffer: a token travels once to each rank that one of its experts is on; low-latency kernels send a copy to each expert.

What other ranks send is what this one sends them: capture's routing is even, and the same on all ranks.
"""

from typing import Any

import torch
import torch.distributed as dist

from deep_ep.utils import EventHandle, EventOverlap
from windtunnel.capture.fused import add_note, kernel, pause_recording

_NOTE = "DeepEP is not installed: dispatch and combine are all-to-alls of the bytes that it sends, other ranks route as this one"
_PEERS = 8  # GPUs of a node
_SCALED = 128  # numbers with a scale of their own

_layout = kernel(
    "deep_ep::get_dispatch_layout(Tensor experts, int count, int ranks) -> (Tensor, Tensor, Tensor)",
    lambda experts, count, ranks: (
        experts.new_empty(ranks, dtype=torch.int32), experts.new_empty(count, dtype=torch.int32),
        experts.new_empty((experts.shape[0], ranks), dtype=torch.bool),
    ),
)  # fmt: skip


class BufferConfig:
    """Buffers of the kernels. Their memory is outside of PyTorch's, and in no capture."""

    def __init__(self, num_sms: int = 24, *chunks: int) -> None:
        self.num_sms, self.chunks = num_sms, chunks or (6, 256, 6, 128)

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        return self.num_sms // 2 * min(num_ranks, _PEERS) * self.chunks[1] * hidden_bytes

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        return 0 if num_ranks <= _PEERS else self.num_sms * (num_ranks // _PEERS) * self.chunks[-1] * hidden_bytes


class Buffer:
    """Sends tokens to the experts of a group and back."""

    num_sms = 20

    def __init__(
        self, group: Any, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0, low_latency_mode: bool = False,
        num_qps_per_rank: int = 24, *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        add_note(_NOTE)
        self.group, self.rank, self.group_size = group, group.rank(), group.size()
        self.num_nvl_bytes, self.num_rdma_bytes, self.low_latency_mode = num_nvl_bytes, num_rdma_bytes, low_latency_mode

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        return EventOverlap(EventHandle())

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> BufferConfig:
        return BufferConfig(Buffer.num_sms)

    get_combine_config = get_dispatch_config

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int) -> int:
        return 4 * num_experts * num_max_dispatch_tokens_per_rank * hidden * 2

    def destroy(self) -> None:
        pass

    def clean_low_latency_buffer(self, *_: Any) -> None:
        pass

    def get_dispatch_layout(
        self, topk_idx: Any, num_experts: int, previous_event: Any = None, async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> Any:  # fmt: skip
        per_rank, per_expert, there = _layout(topk_idx, num_experts, self.group_size)
        with pause_recording():  # the kernel's values: by experts, an expert less than 0 being none
            ranks = torch.where(topk_idx < 0, self.group_size, topk_idx // (num_experts // self.group_size))
            wide = torch.zeros((len(topk_idx), self.group_size + 1), dtype=torch.int32, device=topk_idx.device)
            hit = wide.scatter_(1, ranks.long(), 1)[:, :-1]
            there.copy_(hit.bool())
            per_rank.copy_(hit.sum(0))
            per_expert.copy_(torch.bincount((topk_idx.flatten() + 1).long(), minlength=num_experts + 1)[1:])
        nodes = per_rank.view(-1, _PEERS).sum(1, dtype=torch.int32) if self.group_size > _PEERS else None
        return per_rank, nodes, per_expert, there, _finish(None, async_finish)

    def dispatch(
        self, x: Any, handle: Any = None, num_tokens_per_rank: Any = None, num_tokens_per_rdma_rank: Any = None,
        is_token_in_rank: Any = None, num_tokens_per_expert: Any = None, topk_idx: Any = None, topk_weights: Any = None,
        expert_alignment: int = 1, num_worst_tokens: int = 0, config: Any = None, previous_event: Any = None,
        async_finish: bool = False, allocate_on_comm_stream: bool = False, **_: Any,
    ) -> Any:  # fmt: skip
        parts = [x] if isinstance(x, torch.Tensor) else list(x)
        counts, given = None, handle
        if handle is None:
            sent = num_tokens_per_rank.tolist()  # the host waits for what arrives, too
            with pause_recording():
                own = num_tokens_per_expert.view(self.group_size, -1)[self.rank].tolist()
            counts = [-(-self.group_size * count // expert_alignment) * expert_alignment for count in own]
            handle = (sent, len(parts[0]), self.group_size * sent[self.rank])
        sent, _, arrived = handle
        carried = [*parts, *(part for part in (topk_idx, topk_weights) if part is not None)]
        work = self._send(_row_bytes(carried), sent, [sent[self.rank]] * self.group_size)
        rows = num_worst_tokens or arrived
        made = [part.new_empty((rows, *part.shape[1:])) for part in carried]
        out = made[0] if isinstance(x, torch.Tensor) else tuple(made[: len(parts)])
        experts = weights = None
        if topk_idx is not None:
            experts = made[len(parts)]
            with pause_recording():  # of this rank's experts by their number here: they are on it evenly
                experts.copy_(torch.arange(experts.numel(), device=experts.device).view_as(experts) % max(len(own), 1))
        if topk_weights is not None:
            weights = made[-1]
        return out, experts, weights, counts, handle if given is None else None, _finish(work, async_finish)

    def combine(
        self, x: Any, handle: Any, topk_weights: Any = None, bias: Any = None, config: Any = None, previous_event: Any = None,
        async_finish: bool = False, allocate_on_comm_stream: bool = False, **_: Any,
    ) -> Any:  # fmt: skip
        sent, tokens, _ = handle
        carried = [x, *([] if topk_weights is None else [topk_weights])]
        work = self._send(_row_bytes(carried), [sent[self.rank]] * self.group_size, sent)
        out = x.new_empty((tokens, *x.shape[1:]))
        weights = None if topk_weights is None else topk_weights.new_empty((tokens, *topk_weights.shape[1:]))
        return out, weights, _finish(work, async_finish)

    def low_latency_dispatch(
        self, x: Any, topk_idx: Any, num_max_dispatch_tokens_per_rank: int, num_experts: int,
        cumulative_local_expert_recv_stats: Any = None, dispatch_wait_recv_cost_stats: Any = None, use_fp8: bool = True,
        round_scale: bool = False, use_ue8m0: bool = False, async_finish: bool = False, return_recv_hook: bool = False, **_: Any,
    ) -> Any:  # fmt: skip
        local, hidden = num_experts // self.group_size, x.shape[1]
        sent = self._copies(topk_idx, num_experts)
        width = hidden + hidden // _SCALED * 4 if use_fp8 else hidden * x.element_size()
        work = self._send(width, sent, [sent[self.rank]] * self.group_size)
        slots = (local, self.group_size * num_max_dispatch_tokens_per_rank)
        out = x.new_empty((*slots, hidden), dtype=torch.float8_e4m3fn if use_fp8 else x.dtype)
        if use_fp8:
            scales, kind = (hidden // (4 * _SCALED), torch.int32) if use_ue8m0 else (hidden // _SCALED, torch.float32)
            out = out, x.new_empty((*slots, scales), dtype=kind)
        counts = torch.full((local,), self.group_size * sent[self.rank] // local, dtype=torch.int32, device=x.device)
        handle = (sent, len(x), num_max_dispatch_tokens_per_rank, hidden, num_experts)
        return out, counts, handle, *_finish_or_hook(work, async_finish, return_recv_hook)

    def low_latency_combine(
        self, x: Any, topk_idx: Any, topk_weights: Any, handle: Any, use_logfmt: bool = False, zero_copy: bool = False,
        async_finish: bool = False, return_recv_hook: bool = False, out: Any = None, **_: Any,
    ) -> Any:  # fmt: skip
        sent, tokens = handle[:2]
        work = self._send(x.shape[-1] * x.element_size(), [sent[self.rank]] * self.group_size, sent)
        made = x.new_empty((tokens, x.shape[-1])) if out is None else out
        return made, *_finish_or_hook(work, async_finish, return_recv_hook)

    def get_next_low_latency_combine_buffer(self, handle: Any) -> Any:
        _, _, most, hidden, experts = handle
        return torch.empty((experts // self.group_size, self.group_size * most, hidden), dtype=torch.bfloat16, device="cuda")

    def _copies(self, topk_idx: Any, num_experts: int) -> list[int]:
        """Copies of tokens for the experts of each rank."""
        with pause_recording():
            copies = torch.bincount((topk_idx.flatten() + 1).long(), minlength=num_experts + 1)[1:]
            return [int(count) for count in copies.view(self.group_size, -1).sum(1).tolist()]

    def _send(self, width: int, sent: list[int], received: list[int]) -> Any:
        with pause_recording():
            given, taken = (torch.empty((sum(rows), width), dtype=torch.uint8, device="cuda") for rows in (sent, received))
        return dist.all_to_all_single(taken, given, received, sent, group=self.group, async_op=True)


def _row_bytes(parts: list[Any]) -> int:
    """Bytes of a row of all parts."""
    return int(sum(part.element_size() * part[:1].numel() // max(len(part[:1]), 1) for part in parts))


def _finish(work: Any, later: bool) -> EventOverlap:
    """The event of a call, which is waited for here unless `later`."""
    if later:
        return EventOverlap(EventHandle(work))
    if work is not None:
        work.wait()
    return EventOverlap()


def _finish_or_hook(work: Any, later: bool, hooked: bool) -> Any:
    return (EventOverlap(), work.wait) if hooked else (_finish(work, later), None)
