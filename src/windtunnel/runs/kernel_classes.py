"""Classes of kernels by their names: one row a pattern, with the library that names its kernels so; the first match counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

OTHER = "other"


@dataclass(frozen=True)
class KernelClass:
    """A class, the library of the pattern, and what the kernel's name holds (in lower case, without its function arguments)."""

    name: str
    library: str
    pattern: re.Pattern[str]


def _row(name: str, library: str, pattern: str) -> KernelClass:
    return KernelClass(name, library, re.compile(pattern))


CLASSES: tuple[KernelClass, ...] = (
    _row("attention", "windtunnel", r"^windtunnel::attention::"),
    _row("grouped gemm", "windtunnel", r"^windtunnel::grouped_gemm::"),
    _row("gemm", "windtunnel", r"^windtunnel::gemm::"),
    _row("scan", "windtunnel", r"^windtunnel::scan::"),
    _row("norm", "windtunnel", r"^windtunnel::norm::"),
    _row("loss", "windtunnel", r"^windtunnel::loss::"),
    _row("optimizer", "windtunnel", r"^windtunnel::optimizer::"),
    _row("elementwise", "windtunnel", r"^windtunnel::elementwise::"),
    _row("scan", "mamba-ssm", r"chunk_(?:scan|state|cumsum)|selective_scan|causal_conv1d|ssd_"),
    _row("scan", "flash-linear-attention", r"chunk_(?:fwd|bwd|gated|delta)"),
    _row("attention", "FlashAttention", r"flash|fmha|fwd_splitkv|\bfa[23]_"),
    _row("attention", "cuDNN", r"cudnn.*(?:sdpa|fprop_flash|bprop_flash|mha)"),
    _row("attention", "PyTorch", r"efficient_attention|sdpa|scaled_dot|attention|flex_attention"),
    _row("attention", "CK, AITER", r"aiter.*(?:fmha|mha)|ck_tile.*fmha|_mha_"),
    _row("attention", "DeepSeek", r"mla_|flash_mla"),
    _row("grouped gemm", "CUTLASS, DeepGEMM", r"grouped_?gemm|group_?gemm|m_grouped|k_grouped|moe_gemm|groupedgemm"),
    _row("convolution", "cuDNN", r"conv|winograd|implicit_gemm|cudnn.*(?:fprop|dgrad|wgrad)|dgrad_engine|wgrad_alg"),
    _row("convolution", "cuDNN", r"xmma_(?:fprop|dgrad|wgrad)"),
    _row("gemm", "cuBLAS", r"gemm|gemv|cublas|nvjet|splitkreduce|sm\d\d_xmma|s\d{4,}|h\d{4,}cudnn|dot_kernel|kernel2<cutlass"),
    _row("gemm", "CUTLASS", r"cutlass.*(?:tensorop|wmma|device_kernel)|cutlass::kernel"),
    _row("gemm", "rocBLAS, hipBLASLt", r"cijk_|tensile|rocblas|hipblaslt"),
    _row("gemm", "Triton", r"triton_(?:tem|mm)|_matmul|matmul_kernel"),
    _row("norm", "PyTorch", r"layer_?norm|rms_?norm|group_?norm|batch_?norm|\bbn_|norm_kernel"),
    _row("norm", "Apex, PyTorch", r"gammabeta|rowwisemoments"),
    _row("softmax", "PyTorch", r"softmax"),
    _row("loss", "PyTorch", r"nll_loss|cross_entropy|crossentropy"),
    _row("optimizer", "PyTorch", r"multi_tensor|fused_?adam|adamw?_|adagrad|foreach|lamb|_sgd"),
    _row("embedding", "PyTorch, FBGEMM", r"embedding|embs|indexselect|index_select|gather_kernel|bounds_check_indices"),
    _row("rope", "Megatron, vLLM", r"rope|rotary"),
    _row("moe routing", "Megatron, DeepEP", r"permute|unpermute|topk|moe|expert|router|get_dispatch_layout|radixsort|bitonic|sort"),
    _row("quantise", "Transformer Engine, DeepSeek", r"cast.*fp8|fp8.*cast|quantiz|per_token_cast|amax|mxfp|nvfp4|cast_transpose"),
    _row("dropout", "PyTorch", r"dropout|philox|distribution_elementwise|bernoulli"),
    _row("copy", "PyTorch", r"copy_device|direct_copy|catarray|\bcat_|transpose|chunk_cat|split_?with_?sizes|memcpy|memset"),
    _row("reduction", "PyTorch", r"reduce|cumsum|scan|sum_kernel|argmax"),
    _row("indexing", "PyTorch", r"index|scatter|gather|arange|where|masked|triu|tril|nonzero|compare"),
    _row("elementwise", "PyTorch", r"elementwise|pointwise|functor|fill|bias|tensorapply"),
    _row("elementwise", "Megatron, vLLM", r"swiglu|gelu|silu|relu|activation"),
    _row("elementwise", "Triton", r"triton_(?:poi|per|red|for)"),
)  # fmt: skip


@lru_cache(maxsize=65536)
def class_of(name: str) -> str:
    """The class of a kernel that computes. Template arguments are looked at last, since they name functors of other classes."""
    plain = re.split(r"\(", name.replace("(anonymous namespace)", ""), maxsplit=1)[0].lower()
    outer = re.split(r"<", plain, maxsplit=1)[0]
    for text in (outer, plain):
        for row in CLASSES:
            if row.pattern.search(text):
                return row.name
    return OTHER
