"""The kernels of one job on one GPU, and a few neighbours of each: the rows that a fit needs for that job, measured in little time.

Shapes are the plan's shards; token counts are a quarter, half, once and twice the job's. Classes alternate, the job's own shapes
first, so a sweep that is stopped early has what the job runs, of every class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from windtunnel.base.errors import UnknownName
from windtunnel.profile.case import Case, of_job
from windtunnel.profile.kernels import (
    CLASSES,
    activation,
    attention,
    copy,
    cross_entropy,
    embedding,
    gemm,
    grouped_gemm,
    launch,
    norm,
    optimizer,
    permute,
    reduce,
    residual,
    rope,
    scan,
    softmax,
)
from windtunnel.profile.kernels.case import WIDTH, KernelCase
from windtunnel.profile.kernels.pointwise import PointwiseKernel, one
from windtunnel.profile.kernels.scope import Scope, Shard
from windtunnel.spec import Job

SHARES = (1.0, 0.5, 2.0, 0.25)
"""Token counts of products, relative to the job's."""

FINE = (1.0, 0.5, 2.0, 0.25, 1.5, 0.75, 0.375)
"""Token counts of kernels that move bytes, which are short and vary more."""

SPLITS = ((1, 1.0), (1, 0.5), (1, 0.25), (1, 2.0), (2, 0.5), (2, 1.0), (4, 0.25))
"""Attention: factors on the micro batch and on the sequence."""

DEPTHS = (1, 2, 3, 4, 6, 8)
"""Numbers of layers in one update and in one gradient norm."""

FUSED = {True: ("sdpa_flash", "sdpa_cudnn"), False: ("sdpa",)}
"""Attention on CUDA by backend; on a CPU the one that PyTorch chooses."""


def cases_of_job(job: Job, cuda: bool, classes: Sequence[str] = ()) -> list[KernelCase]:
    """Kernels of one GPU's share of a job, alternating classes; `classes`: only these. SpecError for a job that cannot run as
    modules, UnknownName for an unknown class."""
    runtime = job.runtime
    wide = runtime.precision if runtime.precision in ("fp32", "fp16", "bf16") else "bf16"
    share = of_job(job.model_copy(update={"runtime": runtime.model_copy(update={"precision": wide})}))
    products = "fp8" if runtime.precision in ("mxfp8", "nvfp4") else runtime.precision
    return job_plan(share, cuda, products, classes, runtime.fused_optimizer)


def job_plan(
    case: Case, cuda: bool, products: str = "", classes: Sequence[str] = (), fused_optimizer: bool = True
) -> list[KernelCase]:
    """Cases of `case`, alternating classes. `products`: format of the linear layers if it differs from the case's; `classes`: only
    these.

    Raises UnknownName for an unknown class.
    """
    for name in classes:
        if name not in CLASSES:
            raise UnknownName("--classes", name, list(CLASSES))
    plan = _Plan(case, cuda, products or case.dtype, fused_optimizer)
    lists = []
    for name, cases in plan.by_class().items():
        if not classes or name in classes:
            lists.append(list({each.key: each for each in cases}.values()))
    turns = [each for turn in zip_longest(*lists) for each in turn if each is not None]
    return [replace(each, rank=float(at)) for at, each in enumerate(turns)]


class _Plan:
    """The cases of one job by class."""

    def __init__(self, case: Case, cuda: bool, products: str, fused_optimizer: bool) -> None:
        self.case, self.products, self.fused_optimizer = case, products, fused_optimizer
        self.tokens, self.fine = (
            list(dict.fromkeys(max(1, round(share * case.tokens)) for share in shares)) for shares in (SHARES, FINE)
        )
        self.scope = Scope((case.model,), (case.tp,), tuple(self.tokens), (case.seq,), (case.dtype,), cuda, variants=False)
        self.shard = Shard(case.model, case.tp, 0)

    def by_class(self) -> dict[str, Iterator[KernelCase]]:
        """Class -> its cases, in the order of `kernels.CLASSES`."""
        model, case = self.case.model, self.case
        rms = model.norm == "rmsnorm"
        by_name = {
            "gemm": self._products(),
            "attention": self._attention(),
            "norm": self._rows(next(k for k in norm.KERNELS if k.name == ("rms_norm" if rms else "layer_norm")), model.hidden),
            "activation": self._rows(self._activation(), case.ffn, max(1, case.top_k)),
            "residual": self._rows(PointwiseKernel("elementwise", "residual_add", residual.add, (1, 1), (3, 0)), model.hidden),
            "cross_entropy": self._loss(),
            "embedding": self._embedding(),
            "optimizer": self._updates(),
            "reduce": self._norms(),
        }
        if case.experts:
            by_name |= {"grouped_gemm": self._experts(), "permute": self._permutes()}
        if not self.scope.cuda:
            by_name["scan"] = self._scans()
        if model.position == "rope":
            by_name["rope"] = self._rope()
        if case.attention != "flash":
            by_name["softmax"] = self._softmax()
        ways: list[tuple[str, str, str | None]] = [("device_copy", "fp32", None)]
        if WIDTH[case.dtype] < 4:
            ways += [(f"cast_{a}_{b}", a, b) for a, b in ((case.dtype, "fp32"), ("fp32", case.dtype))]
        by_name["copy"] = (copy.case(name, n, a, b, 0.0) for n in self._parameters() for name, a, b in ways)
        if self.scope.cuda:
            by_name["launch"] = (launch.case("add_one", count, "eager", 0.0) for count in (1, 10))
        return {name: by_name[name] for name in CLASSES if name in by_name}

    def _products(self) -> Iterator[KernelCase]:
        products = gemm.products(self.shard)
        if self.case.experts:
            products = [("router", self.case.experts, self.case.model.hidden), *(one for one in products if one[0][:3] != "mlp")]
        for tokens in self.tokens:
            for name, n, k in products:
                if name == "lm_head":
                    n = self.case.vocab
                dtype = self.case.dtype if name == "lm_head" else self.products
                yield from gemm.passes(self.scope, name, tokens, n, k, dtype, 0.0, self.case.model.name)
        if self.case.attention != "flash":
            for times, share in SPLITS:
                seq, dim = max(1, round(share * self.case.seq)), self.case.model.dim_per_head
                heads = times * self.case.micro_batch * self.case.heads
                for name, n, k in (("attention_scores", seq, dim), ("attention_context", dim, seq)):
                    yield gemm.product(self.scope, name, "forward", seq, n, k, self.case.dtype, 0.0, None, batch=heads)

    def _attention(self) -> Iterator[KernelCase]:
        if self.case.attention != "flash":
            return
        size = self.case.model.dim_per_head
        heads = attention.AttentionHeads(self.case.heads, self.case.kv_heads, size, size)
        for name in FUSED[self.scope.cuda]:
            library = attention.BACKENDS[name][0] if name in attention.BACKENDS else "aten"
            for times, share in SPLITS:
                seq = max(1, round(share * self.case.seq))
                for phase in ("forward", "backward"):
                    yield attention.case(
                        name,
                        library,
                        phase,
                        heads,
                        seq,
                        True,
                        None,
                        self.case.dtype,
                        0.0,
                        self.case.model.name,
                        sequences=times * self.case.micro_batch,
                    )

    def _activation(self) -> PointwiseKernel:
        name = "swiglu" if self.case.model.gated else "squared_relu" if self.case.model.activation == "squared_relu" else "gelu"
        return next(kernel for kernel in (*activation.GATED, *activation.PLAIN) if kernel.name == name)

    def _experts(self) -> Iterator[KernelCase]:
        """Products of all experts, of which each has an even share of the tokens."""
        case, model = self.case, self.case.model
        shape = grouped_gemm.ExpertShapes(model.name, model.hidden, case.ffn, case.experts, case.top_k, (1,), model.gated)
        for tokens in self.tokens:
            fashion = "grouped_mm" if self.scope.cuda and case.dtype == "bf16" else "expert_loop"
            yield from grouped_gemm.layer(self.scope, shape, 1, tokens, fashion, 0.0)

    def _scans(self) -> Iterator[KernelCase]:
        case = self.case
        for times, share in SPLITS:
            seq = max(1, round(share * case.seq))
            yield from scan.recurrences(replace(case, micro_batch=times * case.micro_batch, seq=seq))

    def _permutes(self) -> Iterator[KernelCase]:
        case = self.case
        for tokens in self.fine:
            for name in ("moe_permute", "moe_unpermute"):
                for phase in ("forward", "backward"):
                    yield permute.case(name, tokens, case.model.hidden, case.top_k, phase, case.dtype, 0.0, case.model.name)

    def _rows(self, kernel: PointwiseKernel, n: int, times_tokens: int = 1) -> Iterator[KernelCase]:
        dtype = self.case.dtype
        for tokens in (times_tokens * count for count in self.fine):
            for phase, times in zip(("forward", "backward"), kernel.moved, strict=True):
                if times:
                    yield one(kernel, phase, tokens, n, dtype, times * WIDTH[dtype] * tokens * n, 0.0, self.case.model.name)

    def _rope(self) -> Iterator[KernelCase]:
        heads = self.case.heads + self.case.kv_heads
        for tokens in self.fine:
            for phase in ("forward", "backward"):
                yield rope.case(tokens, heads, self.case.model.dim_per_head, phase, self.case.dtype, 0.0, self.case.model.name)

    def _softmax(self) -> Iterator[KernelCase]:
        for times, share in SPLITS:
            seq = max(1, round(share * self.case.seq))
            rows = times * self.case.micro_batch * self.case.heads * seq
            for phase, moved in zip(("forward", "backward"), softmax.KERNEL.moved, strict=True):
                yield one(softmax.KERNEL, phase, rows, seq, self.case.dtype, moved * WIDTH[self.case.dtype] * rows * seq, 0.0)

    def _loss(self) -> Iterator[KernelCase]:
        for tokens in self.fine:
            for phase in ("forward", "backward"):
                yield cross_entropy.plain_case(tokens, self.case.vocab, phase, self.case.dtype, 0.0, self.case.model.name)

    def _embedding(self) -> Iterator[KernelCase]:
        for tokens in self.fine:
            for phase in ("forward", "backward"):
                yield embedding.case(
                    tokens, self.case.vocab, self.case.model.hidden, phase, self.case.dtype, 0.0, self.case.model.name
                )

    def _parameters(self) -> list[int]:
        """Parameters of stacks of `DEPTHS` layers."""
        return [depth * sum(optimizer.tensors(self.shard)) for depth in self._depths()]

    def _depths(self) -> list[int]:
        one_layer = sum(optimizer.tensors(self.shard))
        fit = [depth for depth in DEPTHS if depth * one_layer <= optimizer.MOST]
        return sorted(fit, key=lambda depth: abs(depth - self.case.model.layers))

    def _updates(self) -> Iterator[KernelCase]:
        way = "fused" if self.fused_optimizer else "foreach"
        for depth in self._depths():
            yield optimizer.case("adamw", way, optimizer.tensors(self.shard) * depth, 0.0, self.case.model.name)

    def _norms(self) -> Iterator[KernelCase]:
        count = len(optimizer.tensors(self.shard))
        for depth, n in zip(self._depths(), self._parameters(), strict=True):
            for name in ("grad_norm", "grad_clip"):
                yield reduce.case(name, n, count * depth, "fp32", 0.0)
