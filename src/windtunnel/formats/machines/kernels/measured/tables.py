"""Where the tables lie: SYSTEM/FAMILY/BACKEND/VERSION/TABLE.parquet below a folder, or in the wheel `aiconfigurator-core`.

Linear layers, quantising kernels, and the batched products of latent attention.

Experts, dense layers of a module, and recurrences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError, Nothing, SpecError, UnknownName
from windtunnel.formats.machines.kernels.measured import attention, calls
from windtunnel.formats.machines.kernels.measured.calls import InnerCall
from windtunnel.formats.machines.kernels.measured.cells import (
    FORMATS,
    MILLI,
    RECIPES,
    Cells,
    Converted,
    formats_of,
    kernel_columns,
    module_columns,
)
from windtunnel.records.work import ELEMENT

UNGATED = ("nongated",)
"""Words of kernels' names whose experts have no gate."""


def convert_experts(cells: Cells) -> list[Converted]:
    """Fused experts of one rank: permutation, both products, activation, un-permutation; without all-to-all. `tokens` are those
    that all ranks of `ep` have together."""
    known, ignored = cells.known_rows("moe_dtype", FORMATS, "experts in")
    words = known.words("moe_dtype")
    shape: dict[str, Any] = {
        "distribution": known.words("distribution"),
        "ep": known.read_whole("moe_ep_size"),
        "expert_ffn": known.read_whole("inter_size"),
        "experts": known.read_whole("num_experts"),
        "gated": np.array([int(not any(word in name for word in UNGATED)) for name in known.words("kernel_source")], np.int64),
        "hidden": known.read_whole("hidden_size"),
        "recipe": np.array([RECIPES.get(word, "") for word in words], np.object_),
        "tokens": known.read_whole("num_tokens"),
        "top_k": known.read_whole("topk"),
        "tp": known.read_whole("moe_tp_size"),
    }
    if "num_slots" in known.table.column_names:
        shape["slots"] = known.read_whole("num_slots")
        shape["own_tokens"] = known.read_whole("rank0_num_tokens")
    name = str(known.words("op_name")[0]) if len(known) else "moe"
    return [Converted(module_columns(known, "moe", name, shape, dtype=formats_of(words)), len(known), ignored)]


def convert_dense(cells: Cells) -> list[Converted]:
    """The dense feed-forward layer of a model with experts."""
    import pyarrow as pa

    known, ignored = cells.known_rows("quant_type", FORMATS, "layers in")
    took = pa.array(known.positive("avg_ms", MILLI) / MILLI)
    timed = Cells(known.table.append_column("latency", took), known.where)
    words = timed.words("quant_type")
    shape = {
        "ffn": timed.read_whole("intermediate_size"),
        "hidden": timed.read_whole("hidden_size"),
        "recipe": formats_of(words, RECIPES),
        "tokens": timed.read_whole("num_token"),
    }
    return [Converted(module_columns(timed, "mlp", "mlp", shape, dtype=formats_of(words)), len(timed), ignored)]


def convert_scan(cells: Cells) -> list[Converted]:
    """Recurrences: batch = sequences x value heads, m tokens of a sequence, n and k sizes of a value and a key; convolutions
    before them: batch = sequences, m tokens, n channels, k their width."""
    names, phase = cells.words("kernel_source"), cells.words("phase")
    sequences = cells.read_whole("batch_size")
    length = np.where(phase == "generation", 1, cells.read_whole("seq_len"))
    short = np.array(["conv1d" in name for name in names], np.bool_)
    if "head_k_dim" in cells.table.column_names:
        keys, values = cells.read_whole("num_k_heads"), cells.read_whole("num_v_heads")
        key, value = cells.read_whole("head_k_dim"), cells.read_whole("head_v_dim")
        channels = 2 * keys * key + values * value
    else:
        values, value = cells.read_whole("nheads"), cells.read_whole("head_dim")
        keys, key = cells.read_whole("n_groups"), cells.read_whole("d_state")
        channels = values * value + 2 * keys * key
    full = np.array([f"{name} {when}" for name, when in zip(names, phase, strict=True)], np.object_)
    shared = np.maximum(values // np.maximum(keys, 1), 1)
    columns = kernel_columns(
        cells, "scan", full, dtype=np.full(len(cells), "bf16", np.object_),
        batch=np.where(short, sequences, sequences * values), m=length, n=np.where(short, channels, value),
        k=np.where(short, cells.read_whole("d_conv"), key), heads_per_kv=np.where(short, 1, shared),
        model=np.array([name.rsplit("/", 1)[-1] for name in cells.words("model_name")], np.object_),
    )  # fmt: skip
    return [Converted(columns, len(cells))]


LATENT = {"mla_gen_pre": (512, 128), "mla_gen_post": (128, 512)}
"""(n, k) of the products around latent attention in decode: queries into the latent, its result back into heads (DeepSeek-V3)."""


def convert_linear(cells: Cells) -> list[Converted]:
    """Products in bf16 are kernels. In 8 and 4 bits a row is a linear layer: its input is quantised, then multiplied."""
    known, ignored = cells.known_rows("gemm_dtype", FORMATS, "gemm in")
    formats = known.words("gemm_dtype")
    plain = np.asarray(formats == "bfloat16", np.bool_)
    made = [Converted(ignored=ignored)]
    if plain.any():
        part = known.take(plain)
        m, n, k = (part.read_whole(name) for name in "mnk")
        work = 2.0 * m.astype(float) * n * k
        moved = 2.0 * (m.astype(float) * k + k.astype(float) * n + m.astype(float) * n)
        dtype = np.full(len(part), "bf16", np.object_)
        columns = kernel_columns(part, "gemm", "linear", dtype=dtype, m=m, n=n, k=k, flops=work, bytes=moved, **_power(part))
        made.append(Converted(columns, len(part)))
    if not plain.all():
        part = known.take(~plain)
        words = part.words("gemm_dtype")
        m, n, k = (part.read_whole(name) for name in "mnk")
        shape = {"recipe": formats_of(words, RECIPES)}
        columns = module_columns(part, "linear", "linear", shape, dtype=formats_of(words), m=m, n=n, k=k, **_power(part))
        made.append(Converted(columns, len(part)))
    return made


def convert_quantising(cells: Cells) -> list[Converted]:
    """Kernels that find a scale, and that quantise with one. Differences of two times that came out as zero are left out."""
    took = cells.numbers("latency")
    known, ignored = cells.take(np.asarray(took > 0.0, np.bool_)).known_rows("quant_dtype", {"fp8": "fp8"}, "quantising to")
    if (zero := int((took <= 0.0).sum())) > 0:
        ignored = (*ignored, f"{cells.where}: {zero:,} rows of no time, differences below the timer's step")
    m, k = known.read_whole("m"), known.read_whole("k")
    columns = kernel_columns(known, "elementwise", known.words("op_name"), dtype=np.full(len(known), "fp8", np.object_), m=m, n=k)
    return [Converted(columns, len(known), ignored)]


def convert_latent_products(cells: Cells) -> list[Converted]:
    """A batch of one product a head."""
    known, ignored = cells.known_rows("bmm_dtype", FORMATS, "products in")
    names = known.words("op_name")
    m, heads = known.read_whole("num_tokens"), known.read_whole("num_heads")
    sizes = np.array([LATENT.get(name, (0, 0)) for name in names], np.int64).reshape(-1, 2)
    dtype = formats_of(known.words("bmm_dtype"))
    width = np.array([ELEMENT[name] for name in dtype])
    n, k = sizes[:, 0], sizes[:, 1]
    moved = heads * (width * (m * k + k * n) + 2.0 * m * n)
    columns = kernel_columns(
        known, "gemm", names, dtype=dtype, batch=heads, m=m, n=n, k=k, flops=2.0 * heads * m.astype(float) * n * k, bytes=moved
    )
    return [Converted(columns, len(known), ignored)]


def _power(cells: Cells) -> dict[str, np.ndarray]:
    """Watts of a table that has them, and the limit in words."""
    if "power" not in cells.table.column_names:
        return {}
    import pyarrow.compute as pc

    watts = np.asarray(pc.fill_null(cells.table["power"], np.nan).to_numpy(), np.float64)
    limit = cells.numbers("power_limit")
    notes = [f"sustained, power limit {value:.0f} W" for value in limit]
    return {"power_w": watts, "note": np.array(notes, np.object_)}


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
    "gemm": _kind(convert_linear, "gemm_dtype m n k", "power power_limit"),
    "computescale": _kind(convert_quantising, "m k quant_dtype op_name"),
    "scale_matrix": _kind(convert_quantising, "m k quant_dtype op_name"),
    "mla_bmm": _kind(convert_latent_products, "bmm_dtype num_tokens num_heads op_name"),
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
    "moe": _kind(convert_experts, f"{_EXPERTS} op_name", "power power_limit"),
    "wideep_context_moe": _kind(convert_experts, f"{_EXPERTS} op_name"),
    "wideep_generation_moe": _kind(convert_experts, f"{_EXPERTS} op_name"),
    "wideep_moe": _kind(
        convert_experts, f"{_EXPERTS} op_name", "moe_kernel dp_num_tokens rank0_num_tokens num_slots simulation_mode"
    ),
    "wideep_context_mlp": TableKind(
        frozenset(["quant_type", "num_token", "hidden_size", "intermediate_size", "avg_ms", "kernel_source"]),
        kernels=convert_dense,
    ),
    "wideep_generation_mlp": TableKind(
        frozenset(["quant_type", "num_token", "hidden_size", "intermediate_size", "avg_ms", "kernel_source"]),
        kernels=convert_dense,
    ),
    "gdn": _kind(
        convert_scan,
        "phase batch_size seq_len d_conv num_k_heads head_k_dim num_v_heads head_v_dim model_name",
        "num_tokens d_model",
    ),
    "kda": _kind(
        convert_scan,
        "phase batch_size seq_len d_conv num_k_heads head_k_dim num_v_heads head_v_dim model_name",
        "num_tokens d_model",
    ),
    "mamba2": _kind(
        convert_scan,
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
    """The tables to read; of each table of an engine the newest releases, all of them, or one that `versions` names. UnknownName
    for a system, engine, family or release that the folder does not have.

    The newest are the newest one and, where that one has only the shapes of new models, those before it back to the last that was
    measured whole (`whole_releases`): older rows fill in what newer ones lack."""
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
    whole = whole_releases(root)
    named_alike: dict[tuple[str, str, str, str], list[TableFile]] = {}
    for file in sorted(every, key=lambda file: version_key(file.version), reverse=True):
        listed = named_alike.setdefault((file.system, file.family, file.backend, file.name), [])
        last = whole(file.system, file.backend)
        if not listed or (last and version_key(listed[-1].version) > version_key(last)):
            listed.append(file)
    return sorted(file for listed in named_alike.values() for file in listed)


def whole_releases(root: Path) -> Callable[[str, str], str]:
    """The release of (system, engine) that was last measured whole: `current` in the tables' own `query_versions.yaml` beside
    `root`; "" where it does not say. FileError for one that is no such file."""
    import yaml

    path = root.parent / "query_versions.yaml"
    try:
        stated = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
        systems = {"": stated.get("defaults", {}), **stated.get("overrides", {})}
        found = {(system, engine): str(one["current"]) for system, own in systems.items() for engine, one in own.items()}
    except (OSError, ValueError, yaml.YAMLError, AttributeError, TypeError, KeyError) as error:
        raise FileError(path.name, "no releases of engines", "defaults and overrides with a current release each") from error
    return lambda system, engine: found.get((system, engine), found.get(("", engine), ""))
