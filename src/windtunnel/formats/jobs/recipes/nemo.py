"""A recipe of NeMo 2 (a `run.Partial` of NeMo-Run) to model, plan and runtime.

Fields: NeMo `nemo/lightning/pytorch/strategies/megatron_strategy.py`, `nemo/collections/llm/gpt/model/base.py`,
`nemo/lightning/pytorch/callbacks/megatron_comm_overlap.py` and `nemo/collections/llm/recipes`. A field `a_b` of the strategy, the
data or the model's configuration is Megatron-LM's flag `--a-b`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.hub_names import catalogue_model
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.launched import Launched
from windtunnel.formats.jobs.megatron.arguments import Arguments
from windtunnel.formats.jobs.megatron.flags import KINDS
from windtunnel.formats.jobs.megatron.importer import from_given, from_settings
from windtunnel.formats.jobs.recipes.megatron_bridge import RENAMED, adapt_model, give
from windtunnel.formats.jobs.recipes.reader import PARTIALS, Recipe
from windtunnel.formats.jobs.recipes.values import Made, Named, Unknown
from windtunnel.spec import Job, Model

FORMAT = "nemo"
_READ = ("trainer.strategy", "data", "model.config", "optim.config")
_HARMLESS = {"log", "resume", "optim", "tokenizer", "dir", "name", "fn", "peft"}
_TRAINER = {"accumulate_grad_batches", "callbacks", "devices", "num_nodes", "num_gpus_per_node", "max_steps", "plugins"}
"""Fields of Lightning's trainer that are read elsewhere, or that Megatron's strategy does not look at."""

_HELPER = {
    "tensor_parallelism": "tensor-model-parallel-size",
    "pipeline_parallelism": "pipeline-model-parallel-size",
    "virtual_pipeline_parallelism": "virtual_pipeline_model_parallel_size",
    "context_parallelism": "context-parallel-size",
    "sequence_parallelism": "sequence-parallel",
    "expert_parallelism": "expert-model-parallel-size",
    "max_steps": "train-iters",
}
"""Arguments of the functions in NeMo's recipes that make a trainer, by flag; they count where such a function is not in reach."""

_OTHER = ("Heterogeneous", "Embedding", "Reranker")
"""Words in the names of configurations whose layers differ from each other, or that see all tokens."""

_DISPATCH = ("moe-token-dispatcher", "moe-grouped-gemm", "moe-permute", "moe-shared-expert-overlap")
"""Beginnings of flags that say how a known model's experts run."""

_TUNED = "set_primary_perf_configs"
_OF_TUNED = {
    "num_nodes": "trainer.num_nodes", "num_gpus_per_node": "trainer.devices", "max_steps": "trainer.max_steps",
    "mbs": "data.micro_batch_size", "gbs": "data.global_batch_size",
    "tp_size": "trainer.strategy.tensor_model_parallel_size", "pp_size": "trainer.strategy.pipeline_model_parallel_size",
    "cp_size": "trainer.strategy.context_parallel_size", "vp_size": "trainer.strategy.virtual_pipeline_model_parallel_size",
    "ep_size": "trainer.strategy.expert_model_parallel_size", "etp_size": "trainer.strategy.expert_tensor_parallel_size",
    "enable_cuda_graphs": "model.config.enable_cuda_graph", "recompute_modules": "model.config.recompute_modules",
}  # fmt: skip
"""The function of NeMo's `scripts/performance/helpers.py` (2.3 to 2.5) that sets a recipe's plan, and its arguments by field."""
_TUNED_PRECISIONS = {"ds": "bf16_with_fp8_mixed", "cs": "bf16_with_fp8_current_scaling_mixed", "mxfp8": "bf16_with_mxfp8_mixed"}

_FSDP = {"megatron": "use-megatron-fsdp", "pytorch": "use-torch-fsdp2"}
_USUAL = {"seq-length": 2048, "micro-batch-size": 1, "global-batch-size": 128}
"""Those of `default_finetune_recipe`."""
_SHORTER = {"gpt3": 2048} | dict.fromkeys(
    ("deepseek", "llama2", "mamba2", "mistral_7b", "mixtral", "nemotron3", "nemotron4", "phi3", "qwen", "starcoder2"), 4096
)
_PRETRAINED = {"seq-length": 8192, "micro-batch-size": 1, "global-batch-size": 512}
"""Those of `pretrain_recipe` (nemo/collections/llm/recipes of 2.4), and families with other sequences."""
_USUAL_GPUS = 8
"""`num_gpus_per_node` of NeMo's recipes, on one node."""


_PLAIN = (".GPTConfig", "TransformerConfig")
_FUSED = {
    "apply_rope_fusion": "no-rope-fusion", "bias_activation_fusion": "no-bias-swiglu-fusion",
    "bias_dropout_fusion": "no-bias-dropout-fusion",
}  # fmt: skip
_DROPOUT = 0.1
"""Fields of `TransformerConfig` (megatron/core/transformer/transformer_config.py 0.12) that are off where nothing sets them,
and its rate of dropout; NeMo's classes of families set their own, its plain `GPTConfig` none (nemo/collections/llm/gpt/model)."""


def telling(recipe: Recipe) -> bool:
    """Whether a recipe returns what NeMo-Run runs: a `run.Partial`, or a recipe of NeMo's own with changes."""
    return recipe.value.name in PARTIALS or recipe.value.name.endswith(("pretrain_recipe", "finetune_recipe", _TUNED))


def from_recipe(recipe: Recipe, stem: str, on: Job | None, stated: Stated | None) -> Imported:
    """Model (of the catalogue by its name, or by the sizes that its configuration has), plan and runtime; with `on`, also a job.

    `stem`: the file's name without its ending, which NeMo's recipes have from their model. SpecError for a model that neither
    names nor sizes tell.
    """
    if recipe.value.name.endswith(_TUNED):
        recipe = replace(recipe, value=_apply_tuning(recipe.value))
    stated, value, args = stated or Stated(), recipe.value, Arguments({})
    if value.name not in PARTIALS:
        if value.args and isinstance(value.args[0], Made):
            value.fields.setdefault("model", value.args[0])
        args.assumed.append(f"degrees of 1 where this file sets none: the recipe that it builds on ({value.name}) is not in reach")
    module = value.get("model")
    if isinstance(module, Made) and module.args and isinstance(module.args[0], Made):  # GPTModel(config, …)
        module.fields.setdefault("config", module.args[0])
    ignored = _fill(value, args)
    _machine(value, args)
    _precision(value.get("trainer.plugins"), args)
    _defaults(value, args)
    args.state(stated)
    model = stated.model or _known_model(recipe, stem, args)
    _class_defaults(value.get("model.config"), args, ("",) if model is None else _DISPATCH)
    if model is None:
        _sizes(value, stem, args)
    if args.has("num-experts") or model is not None and model.experts:
        args.given.setdefault("moe-token-dispatcher-type", ["alltoall"])  # all mixtures of NeMo have it
    if model is not None:
        imported = from_settings(args, adapt_model(recipe, model, args), on, stated, FORMAT, "NeMo recipe")
    else:
        imported = from_given(args, on, stated, FORMAT)
    return imported.with_notes(ignored, recipe.notes)


def _apply_tuning(call: Made) -> Made:
    """The recipe that a call of `set_primary_perf_configs` changes, with its arguments and what is set on its result."""
    value = call.args[0] if call.args and isinstance(call.args[0], Made) else Made("")
    given = call.fields
    for name, path in _OF_TUNED.items():
        if given.get(name) is not None and not isinstance(given[name], Unknown):
            value.put(path, None if name == "vp_size" and given[name] == 1 else given[name])
    value.put("trainer.strategy.sequence_parallel", given.get("tp_size") not in (None, 1))
    if given.get("recompute_modules"):
        value.put("model.config.recompute_granularity", "selective")
    if _count(layers := given.get("recompute_layers")):
        for name, one in (("granularity", "full"), ("method", "block"), ("num_layers", layers)):
            value.put(f"model.config.recompute_{name}", one)
    if _count(layers := given.get("activation_offload_layers")):
        value.put("model.config.cpu_offloading", True)
        value.put("model.config.cpu_offloading_num_layers", layers)
    if given.get("use_mcore_fsdp") is True:
        value.put("trainer.strategy.fsdp", "megatron")
        value.put("trainer.strategy.ddp.data_parallel_sharding_strategy", "optim_grads_params")
    plugin = "bf16_mixed"
    if given.get("compute_dtype") == "fp8":
        plugin = _TUNED_PRECISIONS.get(str(given.get("fp8_recipe", "ds")), "bf16_with_fp8_subchannel_scaling_mixed")
    value.put("trainer.plugins", Made(plugin, fields={"grad_reduce_in_fp32": False}))
    for path, one in call.leaves():
        if "." in path and not isinstance(one, Made):
            value.put(path, one)
    return value


def _fill(value: Made, args: Arguments) -> list[str]:
    """Flags of the recipe's fields; the fields that are none."""
    ignored = []
    overlaps = [one for one in _list_configurations(value.get("trainer.callbacks")) if one.name.endswith("CommOverlapCallback")]
    leaves = [*value.leaves(), *(leaf for one in overlaps for leaf in one.leaves("trainer.strategy"))]
    for path, leaf in leaves:
        section, _, name = path.rpartition(".")
        if isinstance(leaf, (Unknown, Made)) or name.startswith("call:") or section == "trainer.plugins":
            continue
        if section == "trainer" and name in _HELPER and name not in _TRAINER:
            flag = _HELPER[name]
            give(args, RENAMED.get(flag, flag), leaf)
            continue
        flag = RENAMED.get(name, name.replace("_", "-"))
        if flag in KINDS and section.startswith(_READ):
            give(args, flag, leaf)
        elif path.split(".")[0] not in _HARMLESS and name not in _TRAINER and leaf not in (None, False):
            ignored.append(path)
    return ignored


def _list_configurations(value: Any) -> list[Made]:
    """The configurations in a list, or the one that stands alone."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Made)]


def _class_defaults(config: Any, args: Arguments, heads: tuple[str, ...]) -> None:
    """Flags that begin with one of `heads`, by the defaults of a configuration's class in reach, where the recipe sets none."""
    for name, one in config.defaults.items() if isinstance(config, Made) else ():
        flag = RENAMED.get(name, name.replace("_", "-"))
        plain = not isinstance(one, (Unknown, Made)) and name not in config.fields
        if plain and flag.startswith(heads) and flag in KINDS and flag not in args.given:
            give(args, flag, one)


def _machine(value: Made, args: Arguments) -> None:
    """GPUs: the trainer's devices and nodes, or what was handed to a recipe that is not in reach."""
    devices, nodes = (
        next((found for path in paths if _count(found := value.get(path))), None)
        for paths in (
            ("trainer.devices", "trainer.num_gpus_per_node", "num_gpus_per_node"),
            ("trainer.num_nodes", "num_nodes"),
        )
    )
    if devices is None and value.name not in PARTIALS:
        devices = _USUAL_GPUS
        args.assumed.append(f"{devices} GPUs, a node: the recipe that this file builds on is not in reach (--set cluster.gpus=N)")
    if devices is not None:
        args.launcher = Launched(devices * (nodes or 1))
    steps = value.get("trainer.max_steps")
    args.given["train-iters"] = [str(steps) if _count(steps) else "1"]


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**8


def _precision(plugins: Any, args: Arguments) -> None:
    """Megatron's mixed precision as NeMo's plugin has it; NeMo's functions by their names where they are not in reach."""
    for plugin in _list_configurations(plugins):
        half = plugin.fields.get("precision") == "16-mixed" or plugin.name.startswith("fp16")
        args.given["fp16" if half else "bf16"] = []
        if plugin.fields.get("fp8") or "_fp8_" in plugin.name:
            args.given["fp8-format"] = ["hybrid"]
            named = "mxfp8" if "mxfp8" in plugin.name else "tensorwise" if "current_scaling" in plugin.name else "delayed"
            recipe = plugin.fields.get("fp8_recipe")
            args.given["fp8-recipe"] = [recipe if isinstance(recipe, str) else named]
        for name in ("fp8_param_gather", "first_last_layers_bf16"):
            if plugin.fields.get(name) is True:
                args.given[name.replace("_", "-")] = []
        if plugin.fields.get("grad_reduce_in_fp32") is False:
            args.given["grad-reduce-in-bf16"] = []
    if not {"fp16", "bf16"} & args.given.keys():
        args.given["bf16"] = []


def _defaults(value: Made, args: Arguments) -> None:
    """What NeMo's strategy and optimizer do where the recipe is silent."""
    if value.get("trainer.strategy.ddp.grad_reduce_in_fp32") is False:
        args.given["grad-reduce-in-bf16"] = []
    sharding = value.get("trainer.strategy.fsdp")
    if isinstance(sharding, str) and sharding in _FSDP:
        args.given[_FSDP[sharding]] = []
    if value.get("optim.config.use_distributed_optimizer") is not False:
        for flag, path in (
            ("use-distributed-optimizer", "use_distributed_optimizer"),
            ("overlap-grad-reduce", "overlap_grad_reduce"),
            ("overlap-param-gather", "overlap_param_gather"),
        ):
            if value.get(f"trainer.strategy.ddp.{path}") is not False:
                args.given[flag] = []
    args.given.setdefault("transformer-impl", ["transformer_engine"])
    args.given.setdefault("cross-entropy-loss-fusion", [])
    family = value.name.rpartition(".")[0].rpartition(".")[2]
    pretrained = value.name.endswith("pretrain_recipe")
    shorter = next((length for begin, length in _SHORTER.items() if family.startswith(begin)), None)
    longer = re.search(r"_(\d+)k$", family)
    length = 1024 * int(longer[1]) if longer is not None else shorter
    known = {**_PRETRAINED, **({"seq-length": length} if length else {})} if pretrained else _USUAL
    for flag, usual in known.items():
        if flag not in args.given and (flag != "global-batch-size" or value.name.endswith(("pretrain_recipe", "finetune_recipe"))):
            args.given[flag] = [str(usual)]
            args.assumed.append(f"--{flag} {usual}: the recipe's data are not in reach")


def _known_model(recipe: Recipe, stem: str, args: Arguments) -> Model | None:
    """The catalogue's model by the name of the configuration, of the recipe that this one builds on, or of the file."""
    config, module = recipe.value.get("model.config"), recipe.value.get("model")
    hints = [config.name.rpartition(".")[2]] if isinstance(config, Made) and not config.name.endswith("GPTConfig") else []
    if isinstance(module, Made):
        hints += [str(one) for one in (*module.fields.values(), *module.args) if isinstance(one, str)]
        hints += [one.home for one in (module, *module.args) if isinstance(one, Made) and one.home]
    hints += [part for part in recipe.value.name.split(".")[:-1] if part not in ("run", "nemo_run", "llm")]
    for hint in (*hints, stem):
        if (found := catalogue_model(hint, args.assumed)) is not None:
            args.assumed.append(f"model {found.name} of the catalogue, for {hint}")
            return found
    return None


def _sizes(value: Made, stem: str, args: Arguments) -> None:
    """Flags of the sizes in a `GPTConfig`: what the recipe sets, over the defaults of classes in reach."""
    config = value.get("model.config")
    kin = [config.name, *config.bases] if isinstance(config, Made) else []
    if not any(name.endswith("GPTConfig") for name in kin) or any(word in name for name in kin for word in _OTHER):
        raise SpecError(
            "model",
            next((name for name in kin if name), stem) or Nothing(),
            "a recipe of a model of the catalogue, or of a GPTConfig with layers that are all alike",
            "Or give the model beside it: --model NAME or --model CONFIG.JSON.",
        )
    fields = config.defaults | config.fields
    for name, flag in _FUSED.items():  # a class of Megatron-Core's, whose fusions and dropout are not the flags' defaults
        if kin[0].endswith(_PLAIN) and fields.get(name, False) is not True:
            args.given[flag] = []
    for name in ("hidden_dropout", "attention_dropout") if kin[0].endswith(_PLAIN) else ():
        rate = fields.get(name, _DROPOUT)
        args.given[name.replace("_", "-")] = [str(rate if isinstance(rate, (int, float)) else _DROPOUT)]
        if name not in fields:
            args.assumed.append(f"{name} {_DROPOUT}, TransformerConfig's default, as the file sets none")
    if _count(fields.get("num_moe_experts")):
        args.given["num-experts"] = [str(fields["num_moe_experts"])]
    if fields.get("num_query_groups"):
        args.given["group-query-attention"] = []
    if fields.get("add_bias_linear", True) is False:
        args.given["disable-bias-linear"] = []
    if fields.get("share_embeddings_and_output_weights", True) is False:
        args.given["untie-embeddings-and-output-weights"] = []
    activation = str(fields.get("activation_func", ""))
    if fields.get("gated_linear_unit") is True:
        args.given["quick-geglu" if "gelu" in activation else "swiglu"] = []
    elif "squared_relu" in activation:
        args.given["squared-relu"] = []
    if "vocab-size" not in args.given:
        args.given["tokenizer-model"] = [_tokenizer(value) or stem]


def _tokenizer(value: Made) -> str | None:
    """The name of a hub's tokenizer that the recipe hands to its data or its model."""
    for path in ("data.tokenizer", "model.tokenizer", "tokenizer"):
        given = value.get(path)
        if isinstance(given, Made):
            return next((str(one) for one in (*given.args, *given.fields.values()) if isinstance(one, (str, Named))), None)
    return None
