"""A NeMo YAML: `trainer` (devices, nodes, precision) and `model` (sizes, degrees, batches) of NeMo 1.

Keys: NeMo `examples/nlp/language_modeling/conf/megatron_gpt_config.yaml`. A field `a_b` is Megatron-LM's flag `--a-b`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys
from windtunnel.formats.jobs.launched import Launched
from windtunnel.formats.jobs.megatron.arguments import Arguments
from windtunnel.formats.jobs.megatron.flags import KINDS
from windtunnel.formats.jobs.megatron.importer import from_given
from windtunnel.spec import Job

FORMAT = "nemo"
_RENAMED = {
    "encoder_seq_length": "seq-length",
    "num_layers_per_virtual_pipeline_stage": "num-layers-per-virtual-pipeline-stage",
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "activations_checkpoint_granularity": "recompute-granularity",
    "activations_checkpoint_method": "recompute-method",
    "activations_checkpoint_num_layers": "recompute-num-layers",
    "num_moe_experts": "num-experts",
    "make_vocab_size_divisible_by": "make-vocab-size-divisible-by",
    "rotary_percentage": "rotary-percent",
    "ub_tp_comm_overlap": "tp-comm-overlap",
}
_ACTIVATIONS = {"fast-swiglu": "swiglu", "swiglu": "swiglu", "fast-geglu": "quick-geglu", "geglu": "quick-geglu"}
_ACTIVATIONS["squared-relu"] = "squared-relu"
_NORMS = {"rmsnorm": "RMSNorm", "layernorm1p": "LayerNorm", "layernorm": "LayerNorm", "low_precision_layernorm": "LayerNorm"}


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table has NeMo's sections of trainer and model."""
    model = table.get("model")
    return isinstance(table.get("trainer"), Mapping) and isinstance(model, Mapping) and "tensor_model_parallel_size" in model


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model, plan and runtime; with `on`, also a job on that job's cluster. SpecError for what NeMo would refuse too."""
    stated, args, keys = stated or Stated(), Arguments({}), Keys(table)
    model: Mapping[str, Any] = table["model"]
    for name, value in model.items():
        flag = _RENAMED.get(str(name), str(name).replace("_", "-"))
        if flag not in KINDS or isinstance(value, Mapping):
            continue
        keys.get(f"model.{name}")
        if value in (None, False) or isinstance(value, str) and "${" in value:
            continue
        args.given[flag] = [] if value is True else [str(one) for one in value] if isinstance(value, list) else [str(value)]
    _spelled_otherwise(keys, args)
    _tokenizer(keys, args)
    devices, nodes = (keys.get(f"trainer.{name}") for name in ("devices", "num_nodes"))
    if isinstance(devices, int) and not isinstance(devices, bool) and devices > 0:
        args.launcher = Launched(devices * (nodes if isinstance(nodes, int) and not isinstance(nodes, bool) and nodes > 0 else 1))
    elif isinstance(nodes, int) and not isinstance(nodes, bool) and nodes > 0:
        args.launcher = Launched(None, nodes)
    args.given["train-iters"] = [str(keys.count("trainer.max_steps") or 1)]
    args.state(stated)
    imported = from_given(args, on, stated, FORMAT)
    return replace(imported, ignored=keys.left_over())


def _tokenizer(keys: Keys, args: Arguments) -> None:
    """Megatron's type of a tokenizer, or the name of the hub's or the file's: `model.tokenizer` of NeMo."""
    kind, library = (keys.get(f"model.tokenizer.{name}") for name in ("type", "library"))
    named = [kind, keys.get("model.tokenizer.model"), keys.get("model.tokenizer.tokenizer_model")]
    if library == "megatron" and isinstance(kind, str):
        args.given["tokenizer-type"] = [kind]
    elif found := [one for one in named if isinstance(one, str) and one]:
        args.given["tokenizer-model"] = found


def _spelled_otherwise(keys: Keys, args: Arguments) -> None:
    """Fields whose values differ from Megatron-LM's flags."""
    activation, norm = (
        str(keys.get("model.activation") or "gelu").lower(),
        str(keys.get("model.normalization") or "layernorm").lower(),
    )
    if activation in _ACTIVATIONS:
        args.given[_ACTIVATIONS[activation]] = []
    elif activation not in ("gelu", "relu"):
        raise SpecError("model.activation", activation, ", ".join(("gelu", *_ACTIVATIONS)))
    if norm not in _NORMS:
        raise SpecError("model.normalization", norm, ", ".join(_NORMS))
    args.given["normalization"] = [_NORMS[norm]]
    if keys.get("model.bias") is False:
        args.given["disable-bias-linear"] = []
    if keys.get("model.share_embeddings_and_output_weights") is False:
        args.given["untie-embeddings-and-output-weights"] = []
    if keys.get("model.num_query_groups"):
        args.given["group-query-attention"] = []
    precision = str(keys.get("trainer.precision") or "bf16")
    args.given["fp16" if precision in ("16", "16-mixed", "fp16") else "bf16"] = []
    if keys.get("model.fp8") is True:
        args.given["fp8-format"] = ["hybrid"]
    optimizer = str(keys.get("model.optim.name") or "fused_adam")
    if "distributed" in optimizer:
        args.given["use-distributed-optimizer"] = []
    for name, flag in (("overlap_grad_sync", "overlap-grad-reduce"), ("overlap_param_sync", "overlap-param-gather")):
        if keys.get(f"model.optim.{name}") is True:
            args.given[flag] = []
    if keys.get("model.transformer_engine") is True or keys.get("model.mcore_gpt") is True:
        args.given["transformer-impl"] = ["transformer_engine"]
    for name in ("hidden_dropout", "attention_dropout"):
        args.given.setdefault(name.replace("_", "-"), [str(keys.get(f"model.{name}") or 0.0)])
