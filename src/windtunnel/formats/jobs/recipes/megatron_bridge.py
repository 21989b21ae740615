"""A recipe of Megatron-Bridge (a ConfigContainer) to model, plan and runtime.

Fields: `megatron/bridge/training/config.py`, `mixed_precision.py` and `comm_overlap.py`; a field `a_b` of the model, the training
or the data-parallel section is Megatron-LM's flag `--a-b`.
"""

from __future__ import annotations

import re
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.hub_names import catalogue_model
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.megatron.arguments import Arguments
from windtunnel.formats.jobs.megatron.flags import KINDS
from windtunnel.formats.jobs.megatron.importer import from_settings
from windtunnel.formats.jobs.recipes.reader import Recipe
from windtunnel.formats.jobs.recipes.values import Made, Named, Unknown
from windtunnel.spec import Job, Model
from windtunnel.spec.model import Lora

FORMAT = "megatron-bridge"
SECTIONS = ("model", "train", "ddp", "optimizer", "comm_overlap", "dataset", "dist", "strategy", "data", "trainer")
RENAMED: dict[str, str] = table_beside(__file__)["renamed"]
_SWITCHED_OFF = {
    "apply_rope_fusion": "no-rope-fusion",
    "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "bias_dropout_fusion": "no-bias-dropout-fusion",
    "masked_softmax_fusion": "no-masked-softmax-fusion",
    "async_tensor_model_parallel_allreduce": "no-async-tensor-model-parallel-allreduce",
}
_HARMLESS = ("env_vars", "logger", "checkpoint", "rng", "scheduler", "tokenizer", "rerun_state_machine", "profiling", "validation")
_USUAL = {"llama3": 8192, "llama31": 8192, "nemotronh": 8192}
"""Sequences of the base recipes (`megatron/bridge/recipes`) that are not 4096."""


def from_recipe(recipe: Recipe, on: Job | None, stated: Stated | None) -> Imported:
    """Model (of the catalogue, by the recipe's name or its provider), plan and runtime; with `on`, also a job."""
    stated = stated or Stated()
    args = Arguments({}, software=tuple(table_beside(__file__)["software"]))
    ignored = _fill(recipe, args)
    _defaults(recipe, args, stated)
    args.state(stated)
    known = stated.model or _model(recipe, args)
    imported = from_settings(args, adapt_model(recipe, known, args), on, stated, FORMAT, "Megatron-Bridge recipe")
    return imported.with_notes(ignored, recipe.notes)


def _fill(recipe: Recipe, args: Arguments) -> list[str]:
    """Flags of the recipe's fields; the fields that are none."""
    ignored = []
    for path, value in recipe.value.leaves():
        section, _, name = path.rpartition(".")
        if isinstance(value, (Unknown, Made)) or name.startswith("call:") or path.split(".")[0] == "mixed_precision":
            continue
        flag = RENAMED.get(name, name.replace("_", "-"))
        if value is False and name in _SWITCHED_OFF:
            args.given[_SWITCHED_OFF[name]] = []
        elif flag in KINDS and section.split(".")[0] in SECTIONS:
            give(args, flag, value)
        elif path.split(".")[0] not in _HARMLESS and value not in (None, False) and name not in _SWITCHED_OFF:
            ignored.append(path)
    return ignored


def give(args: Arguments, flag: str, value: Any) -> None:
    """Sets a flag from the value of a field; None and False take it away."""
    if value is None or value is False:
        args.given.pop(flag, None)
    elif value is True:
        args.given[flag] = []
    elif isinstance(value, list):
        args.given[flag] = [_word(one) for one in value]
    else:
        args.given[flag] = [_word(value)]


def _word(value: Any) -> str:
    text = str(value).removeprefix("torch.")
    if isinstance(value, Named):
        text = text.rpartition(".")[2]
    return {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "uint8": "fp8"}.get(text, text)


def _defaults(recipe: Recipe, args: Arguments, stated: Stated) -> None:
    """What the base recipes set that are not in reach, and what a configuration container defaults to."""
    value = recipe.value
    for path, flag in (("model.call:set_deepseek_v3_pipeline_model_parallel_layout", "pipeline-model-parallel-layout"),):
        layout = value.get(path)
        if isinstance(layout, str):
            args.given[flag] = [layout]
        elif flag not in args.given and (built := _built_layout(recipe.name, args)) is not None:
            args.given[flag] = [built]
    batch = value.fields.get("call:_with_global_batch_size")
    if isinstance(batch, int):
        args.given["global-batch-size"] = [str(batch)]
    if "world-size" not in args.given and (match := re.search(r"_(\d{1,6})gpus?_", f"{recipe.name}_")):
        args.given["world-size"] = [match[1]]
    args.given["bf16"] = []
    for flag, path in (
        ("use-distributed-optimizer", "ddp.use_distributed_optimizer"),
        ("overlap-grad-reduce", "ddp.overlap_grad_reduce"),
        ("overlap-param-gather", "ddp.overlap_param_gather"),
    ):
        if value.get(path) is not False and value.get(f"comm_overlap.{path.partition('.')[2]}") is not False:
            args.given[flag] = []
    _precision(value, args)
    args.given.setdefault("transformer-impl", ["transformer_engine"])
    args.given.setdefault("cross-entropy-loss-fusion", [])
    if "seq-length" not in args.given and stated.whole_number("plan.seq") is None:
        family = recipe.name.split("_")[0]
        args.given["seq-length"] = [str(_USUAL.get(family, 4096))]
        args.assumed.append(f"sequences of {args.given['seq-length'][0]} tokens, those of the base recipe (--set plan.seq=N)")
    if "micro-batch-size" not in args.given:
        args.given["micro-batch-size"] = ["1"]
        args.assumed.append("micro batch 1 (train.micro_batch_size left out)")


def _built_layout(name: str, args: Arguments) -> str | None:
    """The layout that the recipe's own builder makes for its number of virtual stages; None where it has none for it."""
    stages = [args.integer(flag) or 1 for flag in ("pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank")]
    for model, layouts in table_beside(__file__)["layouts"].items():
        if name.startswith(model):
            layout: str | None = layouts.get(str(stages[0] * stages[1]))
            return layout
    return None


def _precision(value: Made, args: Arguments) -> None:
    """Megatron-Bridge's names of mixed-precision recipes."""
    mixed = value.fields.get("mixed_precision", "bf16_mixed")
    made = mixed if isinstance(mixed, Made) else Made(str(mixed))
    name = " ".join([made.name, *(str(one) for one in made.args)])
    reduce = made.fields.get("grad_reduce_in_fp32", value.get("ddp.grad_reduce_in_fp32"))
    if reduce is False or "perf_precision" in name:
        args.given["grad-reduce-in-bf16"] = []
    for word, flag, text in table_beside(__file__)["precisions"]:
        if word in name:
            args.given[flag] = [text]
            if flag == "fp8-recipe":
                args.given["fp8-format"] = ["hybrid"]
            break
    ends = 0 if "current_scaling" not in name else 2 if name.startswith(("nemotron_h", "nanov2")) else 1  # its layers in 16 bits
    if made.fields.get("first_last_layers_bf16", ends > 0) is True:
        args.given["first-last-layers-bf16"] = []
        for end in ("num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"):
            args.given[end.replace("_", "-")] = [str(made.fields.get(end, ends))]
    gathers = args.text("fp8-recipe") in ("mxfp8", "delayed", "tensorwise")  # bf16_with_fp8_*_mixed but for blocks
    for field, usual in (("fp8_param_gather", gathers), ("fp8_dot_product_attention", False)):
        if made.fields.get(field, usual) is True:
            args.given[field.replace("_", "-")] = []


def _model(recipe: Recipe, args: Arguments) -> Model:
    """The provider's or the hub's name of the model, else the recipe's own, else that of the recipe it builds on."""
    provider = recipe.value.fields.get("model")
    hints = [str(one) for one in provider.args if isinstance(one, str)] if isinstance(provider, Made) else []
    hints += [provider.name] if isinstance(provider, Made) else []
    bases = [name for name in recipe.followed if "_pretrain_" in name and name.endswith("config")]
    for hint in (*hints, recipe.name, *bases):
        if (found := catalogue_model(hint, args.assumed)) is not None:
            args.assumed.append(f"model {found.name} of the catalogue, for {hint}")
            return found
    raise SpecError(
        "model",
        hints[0] if hints else recipe.name if recipe.name else Nothing(),
        "a recipe of a model of the catalogue",
        "Or give the model beside it: --model NAME or --model CONFIG.JSON.",
    )


def adapt_model(recipe: Recipe, model: Model, args: Arguments) -> Model:
    """The model with what the recipe changes of it: layers, MTP, vocabulary, adapters."""
    fields: dict[str, Any] = {}
    for flag, field in (("num-layers", "layers"), ("mtp-num-layers", "mtp_layers"), ("vocab-size", "vocab")):
        if flag in args.given:
            fields[field] = args.integer(flag)
    if "model.mtp_num_layers" in dict(recipe.value.leaves()) and "mtp-num-layers" not in args.given:
        fields["mtp_layers"] = 0
    vocabulary = recipe.value.get("tokenizer.vocab_size")
    if isinstance(vocabulary, int) and not isinstance(vocabulary, bool) and 1 < vocabulary < 10**8:
        fields["vocab"] = vocabulary
    peft = recipe.value.fields.get("peft")
    if peft is not None and not isinstance(peft, Unknown):
        rank = peft.get("dim") if isinstance(peft, Made) else None
        rank = rank if isinstance(rank, int) and not isinstance(rank, bool) and 0 < rank < 10**5 else 32
        if model.experts:
            fields["lora"] = Lora(rank=rank, targets=("linear_qkv", "linear_proj"))
            args.assumed.append(f"adapters of rank {rank} on attention alone: those of experts are not modelled")
        else:
            fields["lora"] = Lora(rank=rank, targets=("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"))
            args.assumed.append(f"adapters of rank {rank} on all linear layers (the LoRA of NeMo and Megatron-Bridge)")
    return Model.model_validate({**model.model_dump(), **fields}) if fields else model
