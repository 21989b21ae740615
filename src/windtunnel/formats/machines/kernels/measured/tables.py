"""Where the tables lie: SYSTEM/FAMILY/BACKEND/VERSION/TABLE.parquet below a folder, or in the wheel `aiconfigurator-core`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from windtunnel.base.errors import FileError, Nothing, SpecError, UnknownName
from windtunnel.formats.machines.kernels.measured import attention, blocks, calls, products
from windtunnel.formats.machines.kernels.measured.calls import InnerCall
from windtunnel.formats.machines.kernels.measured.cells import Cells, Converted

WHEEL = "aiconfigurator_core"
"""The module of the wheel."""

BELOW = ("systems/data", "data", "aiconfigurator_core/systems/data", "")
"""Folders below the one that a user gives in which the systems may lie."""

SYSTEMS = {
    "a100_sxm": "a100-sxm-80gb",
    "a100_pcie": "a100-pcie-80gb",
    "h100_sxm": "h100-sxm-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200-sxm-180gb",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
"""Folders of systems -> GPUs of the catalogue."""

COMMON = frozenset({"framework", "version", "device", "op_name", "kernel_source", "latency"})
KernelReader = Callable[[Cells], list[Converted]]
CallReader = Callable[[Cells], tuple[list[InnerCall], tuple[str, ...]]]


@dataclass(frozen=True)
class TableKind:
    """A kind of table: what reads it, columns that it must have, and others that it may have."""

    needs: frozenset[str]
    kernels: KernelReader | None = None
    calls: CallReader | None = None
    may: frozenset[str] = field(default_factory=frozenset)

    @property
    def known_columns(self) -> frozenset[str]:
        """Columns that are understood."""
        return self.needs | self.may | COMMON


def _kind(reader: KernelReader, needs: str, may: str = "") -> TableKind:
    return TableKind(frozenset(needs.split()) | {"kernel_source", "latency"}, kernels=reader, may=frozenset(may.split()))


def _calls(reader: CallReader, needs: str, may: str = "") -> TableKind:
    return TableKind(frozenset(needs.split()), calls=reader, may=frozenset(may.split()))


_HEADS = "batch_size isl num_heads step"
_EXPERTS = "moe_dtype num_tokens hidden_size inter_size topk num_experts moe_tp_size moe_ep_size distribution"
_LATENT = f"{_HEADS} mla_dtype kv_cache_dtype"
_MODULE = f"{_LATENT} gemm_type model"
_DEEP = "node_num hidden_size num_token num_topk num_experts"

KINDS: Mapping[str, TableKind] = {
    "gemm": _kind(products.convert_linear, "gemm_dtype m n k", "power power_limit"),
    "computescale": _kind(products.convert_quantising, "m k quant_dtype op_name"),
    "scale_matrix": _kind(products.convert_quantising, "m k quant_dtype op_name"),
    "mla_bmm": _kind(products.convert_latent_products, "bmm_dtype num_tokens num_heads op_name"),
    "context_attention": _kind(
        attention.convert_prefill,
        f"{_HEADS} num_key_value_heads head_dim attn_dtype kv_cache_dtype",
        "beam_width window_size power power_limit",
    ),
    "generation_attention": _kind(
        attention.convert_decode,
        f"{_HEADS} num_key_value_heads head_dim attn_dtype kv_cache_dtype",
        "beam_width window_size power power_limit",
    ),
    "encoder_attention": _kind(attention.convert_encoder, "batch_size isl num_heads head_dim attn_dtype"),
    "context_mla": _kind(attention.convert_latent_prefill, _LATENT, "tp_size power power_limit"),
    "generation_mla": _kind(attention.convert_latent_decode, _LATENT, "tp_size power power_limit"),
    "mla_context_module": _kind(attention.convert_latent_module, _MODULE, "tp_size architecture"),
    "mla_generation_module": _kind(attention.convert_latent_module, _MODULE, "tp_size architecture"),
    "wideep_context_mla": _kind(attention.convert_latent_module, _MODULE, "tp_size architecture"),
    "wideep_generation_mla": _kind(attention.convert_latent_module, _MODULE, "tp_size architecture"),
    "moe": _kind(blocks.convert_experts, f"{_EXPERTS} op_name", "power power_limit"),
    "wideep_context_moe": _kind(blocks.convert_experts, f"{_EXPERTS} op_name"),
    "wideep_generation_moe": _kind(blocks.convert_experts, f"{_EXPERTS} op_name"),
    "wideep_moe": _kind(
        blocks.convert_experts, f"{_EXPERTS} op_name", "moe_kernel dp_num_tokens rank0_num_tokens num_slots simulation_mode"
    ),
    "wideep_context_mlp": TableKind(
        frozenset(["quant_type", "num_token", "hidden_size", "intermediate_size", "avg_ms", "kernel_source"]),
        kernels=blocks.convert_dense,
    ),
    "wideep_generation_mlp": TableKind(
        frozenset(["quant_type", "num_token", "hidden_size", "intermediate_size", "avg_ms", "kernel_source"]),
        kernels=blocks.convert_dense,
    ),
    "gdn": _kind(
        blocks.convert_scan,
        "phase batch_size seq_len d_conv num_k_heads head_k_dim num_v_heads head_v_dim model_name",
        "num_tokens d_model",
    ),
    "kda": _kind(
        blocks.convert_scan,
        "phase batch_size seq_len d_conv num_k_heads head_k_dim num_v_heads head_v_dim model_name",
        "num_tokens d_model",
    ),
    "mamba2": _kind(
        blocks.convert_scan,
        "phase batch_size seq_len d_conv nheads head_dim n_groups d_state model_name",
        "num_tokens d_model chunk_size",
    ),
    "nccl": _calls(calls.nccl_calls, "op_name nccl_dtype num_gpus message_size latency"),
    "custom_allreduce": _calls(
        calls.engine_calls, "allreduce_dtype num_gpus message_size latency kernel_source", "backend implementation"
    ),
    "wideep_deepep_ll": _calls(
        calls.deepep_calls,
        f"{_DEEP} dispatch_avg_t_us combine_avg_t_us",
        "dispatch_bandwidth_gbps combine_bandwidth_gbps",
    ),
    "wideep_deepep_normal": _calls(
        calls.deepep_calls,
        f"{_DEEP} dispatch_sms dispatch_transmit_us combine_sms combine_transmit_us",
        "dispatch_notify_us combine_notify_us",
    ),
    "trtllm_alltoall": _calls(
        calls.alltoall_calls,
        "moe_dtype num_tokens hidden_size topk num_experts moe_ep_size latency op_name kernel_source",
        "distribution",
    ),
}
"""Tables that are understood, by their name without `_perf.parquet`."""


@dataclass(frozen=True, order=True)
class TableFile:
    """A table of a system, an engine and its release."""

    system: str
    family: str
    backend: str
    version: str
    name: str
    path: Path

    @property
    def where(self) -> str:
        """The file in words, without folders of the machine."""
        return "/".join((self.system, self.family, self.backend, self.version, self.path.name))


def data_folder(path: Path | None) -> Path:
    """The folder of the systems: below `path`, or in the wheel. SpecError where the wheel is not installed, FileError for a folder
    without tables."""
    if path is None:
        found = find_spec(WHEEL)
        if found is None or not found.submodule_search_locations:
            raise SpecError(
                "FOLDER", Nothing(), "a folder of aiconfigurator's tables, or the wheel that has them",
                "Type: pip install 'windtunnel[measured]'",
            )  # fmt: skip
        path = Path(next(iter(found.submodule_search_locations)))
    for below in BELOW:
        if next((path / below).glob("*/*/*/*/*.parquet"), None) is not None:
            return path / below
    raise FileError(
        str(path), "no SYSTEM/FAMILY/BACKEND/VERSION/TABLE.parquet below it", "aiconfigurator's folder `systems/data`",
        "A single system's folder lies one level too deep: give the folder above it.",
    )  # fmt: skip


def version_key(version: str) -> tuple[tuple[int, int | str], ...]:
    """Orders releases: 1.3.0rc9 < 1.3.0rc20 < 1.3.0; words come before numbers."""
    parts = re.findall(r"\d+|[a-z]+", version.lower())
    key: list[tuple[int, int | str]] = [
        (1, int(part)) if part.isdigit() else (-1 if part in ("rc", "dev") else 0, part) for part in parts
    ]
    return (*key, (0, ""))


def find_tables(
    root: Path, systems: Sequence[str] = (), backends: Sequence[str] = (), families: Sequence[str] = (), versions: str = "newest"
) -> list[TableFile]:
    """The tables to read; of each table of an engine the newest release, all of them, or one that `versions` names. UnknownName for
    a system, engine, family or release that the folder does not have."""
    every = sorted(
        TableFile(system, family, backend, version, path.stem.removesuffix("_perf"), path)
        for path in root.glob("*/*/*/*/*.parquet")
        for system, family, backend, version in [path.relative_to(root).parts[:4]]
    )
    for option, asked, column in (
        ("--system", systems, "system"),
        ("--engine", backends, "backend"),
        ("--family", families, "family"),
    ):
        known = sorted({getattr(file, column) for file in every})
        for word in asked:
            if word not in known:
                raise UnknownName(option, word, known)
        every = [file for file in every if not asked or getattr(file, column) in asked]
    if versions == "all":
        return every
    if versions != "newest":
        named = [file for file in every if file.version == versions]
        if not named:
            raise UnknownName("--release", versions, sorted({file.version for file in every}), more="newest and all are taken too.")
        return named
    best: dict[tuple[str, str, str, str], TableFile] = {}
    for file in every:
        key = (file.system, file.family, file.backend, file.name)
        if key not in best or version_key(file.version) > version_key(best[key].version):
            best[key] = file
    return sorted(best.values())
