"""`quantization_config` of a config.json: in which number formats a checkpoint holds its weights.

The keys are those of transformers' quantisation configurations, compressed-tensors, ModelOpt, Quark, torchao and AutoRound. Formats
are those of `base.dtypes.FORMATS`; what is rarer is taken for the nearest one, and said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from windtunnel.base.files import table_beside
from windtunnel.spec.common import CacheFormat
from windtunnel.spec.model import Checkpoint

KEYS = ("quantization_config", "compression_config")
"""Keys of a config.json whose table says it; the second is of releases of compressed-tensors before 0.5."""


class Quantisation(NamedTuple):
    """The formats of quantised layers, by the words of a table. `skipped`: patterns of layers that stay in 16 bits; `only`: of
    those that alone are quantised (none: all linear layers). `note`: what was taken for what."""

    weights: str
    words: str
    skipped: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    kv: CacheFormat | None = None
    note: str = ""


def read_checkpoint(config: Mapping[str, Any], layers: int, used: set[str], assumed: list[str]) -> Checkpoint | None:
    """How the weights of a config.json's repository are packed; None without a word on it.

    `layers`: of the model. The key that was read joins `used`, what had to be taken for something else `assumed`.
    """
    key = next((key for key in KEYS if isinstance(config.get(key), Mapping) and config[key]), None)
    if key is None:
        return None
    found = read_quantisation(config[key])
    if found is None:
        method = _method_of(config[key]) or key
        assumed.append(f"weights of 16 bits: {method} is no way of quantising that is known (--weights states one)")
        return None
    used.add(key)
    if found.note:
        assumed.append(found.note)
    kept = {part: _share_kept(found, names, layers, any) for part, names in PARTS.items()}
    for part, share in kept.items():
        if 0.0 < share < 1.0:
            whole = "16 bits" if share >= 0.5 else found.weights
            assumed.append(f"{part} of all layers in {whole}: {100.0 * share:.0f} % of them are in 16 bits")
    weights: str = found.weights
    attention, dense = ("bf16" if kept[part] >= 0.5 else None for part in PARTS)
    if str(config.get("expert_dtype", "")).lower() in ("fp4", "mxfp4") and weights != "mxfp4":  # DeepSeek-V4
        attention, dense, weights = attention or weights, dense or weights, "mxfp4"
        used.add("expert_dtype")
    elif _share_kept(found, EXPERTS, layers, all) >= 0.5:  # attention or dense layers alone are quantised
        attention, dense, weights = attention or weights, dense or weights, "bf16"
    said = f"{key}: {found.words}"
    return Checkpoint(weights=weights, attention=attention, dense=dense, kv=found.kv, said_by=said)


def read_quantisation(table: Mapping[str, Any]) -> Quantisation | None:
    """The formats of a `quantization_config`, or of ModelOpt's hf_quant_config.json; None for a method that is not known."""
    inner = table.get("quantization")
    if isinstance(inner, Mapping) and "producer" in table:
        table = {"quant_method": "modelopt", **inner}
    if "config_groups" in table and _method_of(table) not in ("modelopt", "quark"):
        return _read_compressed_tensors(table)
    reader = _METHODS.get(_method_of(table))
    return None if reader is None else reader(table)


def _method_of(table: Mapping[str, Any]) -> str:
    name = str(table.get("quant_method") or table.get("quant_type") or "").lower()
    if not name and any(table.get(key) for key in ("load_in_4bit", "load_in_8bit")):
        return "bitsandbytes"
    return name


def _layers_skipped(table: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """Patterns of the layers that stay in 16 bits."""
    words = [word for key in keys for word in (table.get(key) or ())]
    return tuple(str(word) for word in words)


def _read_integers(table: Mapping[str, Any]) -> Quantisation:
    """AWQ, GPTQ and their like: weight-only integers."""
    bits = table.get("bits", table.get("w_bit", table.get("nbits", table.get("weight_bits", 4))))
    group = table.get("group_size", table.get("q_group_size"))
    form, note = _integer_format(bits)
    skipped = [*_layers_skipped(table, "modules_to_not_convert", "skip_modules")]
    rules = table.get("dynamic")  # GPTQModel: "-:" before patterns of what stays
    if isinstance(rules, Mapping):
        skipped += [f"re:{rule[2:]}" for rule in rules if str(rule).startswith("-:")]
    extra = table.get("extra_config")  # AutoRound
    if isinstance(extra, Mapping):
        skipped += [str(name) for name, one in extra.items() if isinstance(one, Mapping) and _is_wide(one.get("bits"))]
    words = f"{_method_of(table)}, {bits} bits" + (f", groups of {group}" if isinstance(group, int) and group > 0 else "")
    return Quantisation(form, words, tuple(skipped), note=note)


def _is_wide(bits: object) -> bool:
    return isinstance(bits, int) and bits >= 16


def _integer_format(bits: object) -> tuple[str, str]:
    """(format, note) of weight-only integers of so many bits."""
    if bits in (4, 8):
        return ("int4" if bits == 4 else "int8"), ""
    wide = isinstance(bits, int) and bits > 4
    form = "int8" if wide else "int4"
    return form, f"weights of {bits} bits as {form}"


def _read_fp8(table: Mapping[str, Any]) -> Quantisation:
    block = table.get("weight_block_size")
    skipped = _layers_skipped(table, "modules_to_not_convert", "ignored_layers")
    words = "fp8" + (f", blocks of {block[0]} x {block[1]}" if isinstance(block, list) and len(block) == 2 else "")
    return Quantisation("fp8_block" if block else "fp8", words, skipped)


def _read_bitsandbytes(table: Mapping[str, Any]) -> Quantisation:
    skipped = _layers_skipped(table, "llm_int8_skip_modules")
    if table.get("load_in_8bit") or table.get("_load_in_8bit"):
        return Quantisation("int8", "bitsandbytes, 8 bits", skipped)
    return Quantisation("nf4", f"bitsandbytes, {table.get('bnb_4bit_quant_type', 'fp4')}", skipped)


def _read_mxfp4(table: Mapping[str, Any]) -> Quantisation:
    skipped = _layers_skipped(table, "modules_to_not_convert")
    return Quantisation("mxfp4", "mxfp4", skipped or ("self_attn",))  # gpt-oss: experts alone


def _read_modelopt(table: Mapping[str, Any]) -> Quantisation | None:
    name = str(table.get("quant_algo") or table.get("quantization_algo") or "").upper()
    skipped = _layers_skipped(table, "exclude_modules", "ignore")
    scheme = table.get("kv_cache_scheme")
    kv = _cache_format(table.get("kv_cache_quant_algo") or (scheme.get("num_bits") if isinstance(scheme, Mapping) else None))
    if name == "MIXED_PRECISION":
        return _read_modelopt_mixed(table, skipped, kv)
    if not name and isinstance(table.get("config_groups"), Mapping):
        found = _read_compressed_tensors(table)
        return None if found is None else found._replace(skipped=skipped or found.skipped, kv=kv or found.kv)
    form, note = _ALGORITHMS.get(name, ("", ""))
    return None if not form else Quantisation(form, f"ModelOpt, {name}", skipped, (), kv, note)


_ALGORITHMS: dict[str, tuple[str, str]] = {
    name: (form, note) for name, (form, note) in table_beside(__file__)["algorithms"].items()
}
"""ModelOpt's and TensorRT-LLM's algorithms -> format, and what must be said."""


def _read_modelopt_mixed(table: Mapping[str, Any], skipped: tuple[str, ...], kv: CacheFormat | None) -> Quantisation | None:
    """A table of layers, each with an algorithm: that of most layers, of experts first."""
    layers = table.get("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        return None
    by_form: dict[str, list[str]] = {}
    for name, one in layers.items():
        algorithm = str(one.get("quant_algo", "") if isinstance(one, Mapping) else one).upper()
        by_form.setdefault(_ALGORITHMS.get(algorithm, ("", ""))[0], []).append(str(name))
    by_form.pop("", None)
    if not by_form:
        return None
    form = max(by_form, key=lambda one: (sum("expert" in name for name in by_form[one]), len(by_form[one])))
    note = "" if len(by_form) == 1 else f"layers in {', '.join(sorted(by_form))}: all of them as {form}"
    return Quantisation(form, f"ModelOpt, mixed: {', '.join(sorted(by_form))}", skipped, tuple(by_form[form]), kv, note)


def _cache_format(word: object) -> CacheFormat | None:
    """Format of a cache by a word or a number of bits."""
    if word is None or word is False:
        return None
    text = str(word).lower()
    return "nvfp4" if "fp4" in text or text == "4" else "fp8" if "8" in text else None


def _read_compressed_tensors(table: Mapping[str, Any]) -> Quantisation | None:
    """Groups of layers, each with its scheme: that of most targets, experts first."""
    groups = [one for one in (table.get("config_groups") or {}).values() if isinstance(one, Mapping)]
    schemes = [found for one in groups if (found := _read_scheme(one)) is not None]
    if not schemes:
        return None
    skipped, kv = _layers_skipped(table, "ignore"), table.get("kv_cache_scheme")
    forms = sorted({form for form, _, _ in schemes})
    form, only, note = max(schemes, key=lambda one: (any("expert" in name for name in one[1]), not one[1], len(one[1])))
    if len(forms) > 1:
        note = f"layers in {', '.join(forms)}: all of them as {form}"
    words = f"compressed-tensors, {table.get('format') or groups[0].get('format') or 'no format'}"
    cached = _cache_format(kv.get("num_bits")) if isinstance(kv, Mapping) else None
    return Quantisation(form, words, skipped, only, cached, note)


def _read_scheme(group: Mapping[str, Any]) -> tuple[str, tuple[str, ...], str] | None:
    """(format, patterns of its layers, note) of a group of compressed-tensors. Targets that are classes mean all layers."""
    weights, inputs = group.get("weights"), group.get("input_activations")
    if not isinstance(weights, Mapping):
        return None
    bits, kind, size = weights.get("num_bits"), weights.get("type", "int"), weights.get("group_size")
    narrow = inputs.get("num_bits") if isinstance(inputs, Mapping) else None
    targets = tuple(str(word) for word in group.get("targets") or () if "." in str(word) or str(word).startswith("re:"))
    block = weights.get("strategy") == "block" or weights.get("block_structure")
    note = ""
    if kind == "float" and bits == 4:
        form = "mxfp4" if size == 32 or narrow is None else "nvfp4"
        note = "weight-only NVFP4 as mxfp4, whose kernels widen 4-bit floats too" if form == "mxfp4" and size != 32 else ""
    elif kind == "float" and bits == 8:
        form = "int8" if narrow is None else "fp8_block" if block else "fp8"
        note = "weight-only FP8 as int8, whose kernels widen 8 bits too" if narrow is None else ""
    elif bits == 8 and narrow == 8:
        form = "w8a8"
    else:
        form, note = _integer_format(bits)
        if narrow is not None and not note:
            note = f"{bits}-bit weights with inputs of {narrow} bits as weight-only {form}"
    return form, targets, note


def _read_quark(table: Mapping[str, Any]) -> Quantisation | None:
    """AMD's: one scheme for all layers, but those excluded."""
    whole = table.get("global_quant_config")
    weight = whole.get("weight") if isinstance(whole, Mapping) else None
    if isinstance(weight, list):
        weight = weight[0] if weight else None
    if not isinstance(weight, Mapping):
        return None
    name = str(weight.get("dtype", "")).lower()
    form = next((form for word, form in (("fp8", "fp8"), ("fp4", "mxfp4"), ("int8", "w8a8"), ("int4", "int4")) if word in name), "")
    cached = table.get("kv_cache_quant_config") or (table.get("export") or {}).get("kv_cache_group")
    note = "MXFP4 with inputs in MXFP4 as weight-only mxfp4" if form == "mxfp4" and whole and whole.get("input_tensors") else ""
    if not form:
        return None
    return Quantisation(form, f"Quark, {name}", _layers_skipped(table, "exclude"), (), "fp8" if cached else None, note)


def _read_torchao(table: Mapping[str, Any]) -> Quantisation | None:
    text = re.sub(r"[^a-z0-9]", "", str(table.get("quant_type") or table.get("quant_type_kwargs") or table).lower())
    for word, form in _TORCHAO:
        if word in text:
            return Quantisation(form, f"torchao, {word}", _layers_skipped(table, "modules_to_not_convert"))
    return None


_TORCHAO = (
    ("float8dynamicactivationfloat8weight", "fp8"), ("float8weightonly", "int8"), ("int8dynamicactivationint8weight", "w8a8"),
    ("int8dynamicactivationint4weight", "int4"), ("float8dynamicactivationint4weight", "int4"), ("int4weightonly", "int4"),
    ("int8weightonly", "int8"), ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("intxweightonly", "int4"), ("uintxweightonly", "int4"),
)  # fmt: skip
"""Words of torchao's configurations -> format."""


def _read_quanto(table: Mapping[str, Any]) -> Quantisation | None:
    name = str(table.get("weights", "")).lower()
    form = {"int8": "int8", "float8": "int8", "int4": "int4", "int2": "int4"}.get(name, "")
    return None if not form else Quantisation(form, f"quanto, {name}", _layers_skipped(table, "modules_to_not_convert"))


def _method_of_one_format(form: str, note: str = "") -> Callable[[Mapping[str, Any]], Quantisation]:
    return lambda table: Quantisation(form, _method_of(table), _layers_skipped(table, "modules_to_not_convert"), note=note)


_METHODS: Mapping[str, Callable[[Mapping[str, Any]], Quantisation | None]] = {
    **dict.fromkeys(
        ("awq", "gptq", "awq_marlin", "gptq_marlin", "gptqmodel", "auto-round", "auto_round", "autoround", "intel/auto-round",
         "auto-gptq", "hqq", "inc", "moe_wna16", "cpu_awq", "ipex", "vptq", "rtn"), _read_integers),
    **dict.fromkeys(("fp8", "finegrained_fp8", "deepseek_v4_fp8"), _read_fp8),
    "fbgemm_fp8": _method_of_one_format("fp8"),
    "ptpc_fp8": _method_of_one_format("fp8"),
    "bitsandbytes": _read_bitsandbytes,
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4"), _read_mxfp4),
    **dict.fromkeys(("modelopt", "modelopt_fp4", "modelopt_mixed", "nvfp4"), _read_modelopt),
    **dict.fromkeys(("compressed-tensors", "compressed_tensors"), _read_compressed_tensors),
    "quark": _read_quark,
    "torchao": _read_torchao,
    "quanto": _read_quanto,
    "eetq": _method_of_one_format("int8"),
    "experts_int8": _method_of_one_format("int8"),
    "fp_quant": _method_of_one_format("mxfp4"),
    "gguf": _method_of_one_format("int4", "GGUF's mixture of bits as int4"),
    **dict.fromkeys(
        ("aqlm", "higgs", "spqr", "bitnet", "quip", "exl2", "exl3"),
        _method_of_one_format("int4", "fewer or mixed bits as int4")),
}  # fmt: skip
"""`quant_method` -> its reader."""

EXPERTS = ("mlp.experts.0.gate_proj", "mlp.experts.gate_up_proj", "block_sparse_moe.experts.0.w1")
PARTS = {
    "attention": ("self_attn.q_proj", "self_attn.q_a_proj", "self_attn.o_proj", "self_attn.qkv_proj", "linear_attn.in_proj_qkvz"),
    "MLPs and shared experts": ("mlp.gate_proj", "mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj", "mlp.down_proj"),
}
"""Names of linear layers by which patterns are tried, below `model.layers.N.`."""


def _share_kept(found: Quantisation, names: Iterable[str], layers: int, which: Callable[[Iterable[bool]], bool]) -> float:
    """The share of layers of which `which` (any or all) of these names stay in 16 bits."""
    only, skipped = _compile_patterns(found.only), _compile_patterns(found.skipped)

    def stays_wide(name: str) -> bool:
        return bool(found.only) and not _is_named(only, name) or _is_named(skipped, name)

    tried = range(0, layers, layers // 200 + 1)
    kept = sum(which(stays_wide(f"model.layers.{layer}.{name}") for name in names) for layer in tried)
    return kept / max(len(tried), 1)


class _Patterns(NamedTuple):
    """Names of linear layers: `plain` ones, whole runs of parts of their paths, and `searches` for the others."""

    plain: frozenset[str]
    searches: tuple[Callable[[str], Any], ...]


def _is_named(patterns: _Patterns, name: str) -> bool:
    """Whether one of the patterns names a linear layer."""
    parts = name.split(".")
    paths = (".".join(parts[first:end]) for first in range(len(parts)) for end in range(first + 1, len(parts) + 1))
    return any(path in patterns.plain for path in paths) or any(search(name) is not None for search in patterns.searches)


@lru_cache(maxsize=16)
def _compile_patterns(patterns: tuple[str, ...]) -> _Patterns:
    """Of a checkpoint's patterns, tens of thousands in one of mixed formats: a regular expression after "re:", else a part
    of a path with * and ?. Prefixes of multimodal models ("language_model.") are left aside."""
    plain: set[str] = set()
    searches: list[Callable[[str], Any]] = []
    for pattern in patterns:
        expression = pattern.startswith("re:")
        bare = re.sub(r"(language_model|thinker|text_model)\\?\.", "", pattern[3:] if expression else pattern)
        text = bare.strip(".").removeprefix("*.")
        if expression:
            with suppress(re.error):
                searches.append(re.compile(bare).match)
        elif "*" in text or "?" in text:
            text = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
            searches.append(re.compile(rf"(?:^|\.)(?:{text})(?:\.|$)").search)
        else:
            plain.add(text)
    return _Patterns(frozenset(plain), tuple(searches))
