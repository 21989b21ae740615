"""A Primus experiment (YAML) for its Megatron-LM and torchtitan back ends: a model's file, a trainer's file, and overrides.

Fields: AMD-AGI/Primus `primus/configs/modules/megatron/trainer_base.yaml` and `models/megatron/language_model.yaml`, whose names
are the attributes of Megatron-LM's arguments; of torchtitan, its own sections. The files are opened by `files`.

The files that a Primus experiment names, opened where they lie: the model's, the trainer's, and those that these extend.

Primus keeps them at `primus/configs/models/FRAMEWORK/` and `primus/configs/modules/FRAMEWORK/` (`primus/core/config`); a file lists
under `extends` (`bases` or `includes` in older ones) those whose fields it changes. `${NAME:default}` is a variable of the
environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.formats.jobs.hub_names import catalogue_model
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.megatron.arguments import Arguments
from windtunnel.formats.jobs.megatron.flags import KINDS
from windtunnel.formats.jobs.megatron.importer import from_given, from_settings
from windtunnel.formats.jobs.scripts.script_call import is_file
from windtunnel.formats.jobs.torchtitan import import_table as from_torchtitan
from windtunnel.spec import Job, Model
from windtunnel.spec.loading.files import read_table
from windtunnel.spec.loading.resolve import merge

FORMAT = "primus"
_BACK_ENDS = ("megatron", "torchtitan")
_RENAMED = {
    "virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "use_custom_fsdp": "use-megatron-fsdp",
    "fp8": "fp8-format",
    "fp4": "fp4-format",
}
_SWITCHED_OFF = {
    "add_bias_linear": "disable-bias-linear",
    "apply_rope_fusion": "no-rope-fusion",
    "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "bias_dropout_fusion": "no-bias-dropout-fusion",
    "bias_gelu_fusion": "no-bias-gelu-fusion",
    "bias_swiglu_fusion": "no-bias-swiglu-fusion",
    "masked_softmax_fusion": "no-masked-softmax-fusion",
    "overlap_p2p_comm": "no-overlap-p2p-communication",
}
"""Attributes that are true where nothing is said, by the flag that makes them false."""
_NOT_READ = ("hybrid_", "linear_attention", "experimental_attention", "lfm_layer_types", "mamba_", "encoder_num_layers")
_TRAINER: dict[str, Any] = {"bf16": True, "use_distributed_optimizer": True, "use_flash_attn": True, "seq_length": 1024}
"""What `pre_trainer.yaml` sets that a step depends on, where the file is not in reach."""


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is an experiment of Primus: a module with a framework and a model."""
    return module_of(table) is not None


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model, plan and runtime; with `on`, also a job on that job's cluster. What the user has `stated` beats the files.

    SpecError names the file that is missing where neither it nor the catalogue has the model.
    """
    stated = stated or Stated()
    name, module = module_of(table) or ("", {})
    back_end, files = module.get("framework"), module.get(OPENED) or {}
    if back_end not in _BACK_ENDS:
        raise SpecError(f"modules.{name}.framework", back_end, ", ".join(_BACK_ENDS), "Not modelled in this version.")
    assumed: list[str] = []
    known = stated.model
    if known is None and "model" not in files:
        known = _of_catalogue(name, module, assumed)
    overrides = module.get("overrides") or {}
    if not isinstance(overrides, Mapping):
        raise SpecError(f"modules.{name}.overrides", overrides, "a table of fields")
    trainer = files.get("config")
    if trainer is None:
        trainer = _TRAINER if back_end == "megatron" else {}
        assumed.append(f"the defaults of Primus' trainer: {module.get('config')} is not in reach")
    settings = merge(merge(dict(trainer), files.get("model") or {}), dict(overrides))
    if back_end == "megatron":
        _refuse({**(files.get("model") or {}), **overrides})
        imported = _megatron(settings, known, on, stated)
        idle = {flag[2:].replace("-", "_") for flag in imported.ignored}
        idle |= {key for key in overrides if _flag(str(key)) not in KINDS and key not in _SWITCHED_OFF}
        ignored = tuple(
            sorted(key for key in overrides if key in idle and overrides[key] is not None and overrides[key] is not False)
        )
    else:
        stated = replace(stated, model=known)
        imported = from_torchtitan(settings, on, stated)
        ignored = tuple(path for path in imported.ignored if path.partition(".")[0] in overrides)
    job = imported.job.model_copy(update={"source": "Primus experiment"}) if imported.job is not None else None
    return replace(imported, format=FORMAT, job=job, ignored=ignored, assumed=(*assumed, *imported.assumed))


def _of_catalogue(name: str, module: Mapping[str, Any], assumed: list[str]) -> Model:
    """The catalogue's model of the name that the missing file has."""
    file, back_end = str(module.get("model")), module.get("framework")
    known = catalogue_model(file.rpartition(".")[0] or file, assumed)
    if known is None:
        raise SpecError(
            f"modules.{name}.model",
            module.get("model") or Nothing(),
            f"a file beside this one, or at primus/configs/models/{back_end}/{file} of a folder above",
            "Add that file, or give the model: --model NAME or --model CONFIG.JSON.",
        )
    assumed.append(f"model {known.name} of the catalogue: {file} is not in reach")
    return known


def _refuse(fields: Mapping[str, Any]) -> None:
    """SpecError for a model that is no decoder of attention, MLPs and experts; all of Megatron-LM's refusals hold beside this."""
    kind = fields.get("model_type")
    if kind not in (None, "gpt") and not fields.get("hybrid_override_pattern"):
        raise SpecError("model_type", kind, "gpt", "Not modelled in this version.")
    if fields.get("vocab_size") == 1 or fields.get("tokenizer_type") == "NullTokenizer" and not fields.get("vocab_size"):
        raise SpecError(
            "vocab_size", fields.get("vocab_size"), "the vocabulary of a decoder", "Diffusion models are not read here."
        )
    for name, value in fields.items():
        if value and _flag(str(name)) not in KINDS and str(name).startswith(_NOT_READ):
            raise SpecError(str(name), value, "a decoder of attention, MLPs and experts", "Not modelled in this version.")


def _flag(name: str) -> str:
    return _RENAMED.get(name, name.replace("_", "-"))


def _megatron(settings: Mapping[str, Any], known: Model | None, on: Job | None, stated: Stated) -> Imported:
    """The attributes as Megatron-LM's flags."""
    args = Arguments({})
    for name, value in settings.items():
        flag = _flag(str(name))
        if name in _SWITCHED_OFF:
            if value is False:
                args.given[_SWITCHED_OFF[str(name)]] = []
        elif flag in KINDS and value is not None and value is not False:
            args.given[flag] = _words(flag, value)
    if not {"use-megatron-fsdp", "use-torch-fsdp2"} & set(args.given):
        args.given.pop("data-parallel-sharding-strategy", None)
    if settings.get("enable_primus_turbo") is True and settings.get("use_turbo_deepep") is True:
        args.given |= {"moe-token-dispatcher-type": ["flex"], "moe-enable-deepep": []}
    args.given["tokenizer-model"] = [str(settings.get("tokenizer_model") or "")]
    args.given.setdefault("transformer-impl", ["transformer_engine"])
    args.state(stated)
    return from_given(args, on, stated, FORMAT) if known is None else from_settings(args, known, on, stated, FORMAT)


def _words(flag: str, value: Any) -> list[str]:
    if KINDS[flag] == "switch":
        return []
    if isinstance(value, Mapping):
        raise SpecError(flag.replace("-", "_"), "a table", "a number or a text")
    return [str(one) for one in value] if isinstance(value, list) and KINDS[flag] == "list" else [str(value)]


OPENED = "opened"
"""Key under which a module of an experiment gets what its files say: {"model": …, "config": …}; a file not found is left out."""
_TREE = Path("primus/configs")
_UPWARDS = 8
_MOST_FILES = 64
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::([^{}]*))?\}")
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}
_EXTENDS = ("extends", "bases", "includes")
_FOLDERS = {"model": "models", "config": "modules"}


def module_of(table: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """(name, module) of an experiment's first trainer; None for a table that is none of Primus'."""
    modules = table.get("modules")
    if not isinstance(modules, Mapping):
        return None
    found = ((str(name), one) for name, one in modules.items() if isinstance(one, Mapping) and {"framework", "model"} <= set(one))
    return next(found, None)


def open_experiment(table: Mapping[str, Any], folder: Path, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """The experiment with its variables filled in and its files opened; another table as it is. FileError for a broken file."""
    if module_of(table) is None:
        return table
    filled = _fill_variables(table, environment)
    name, module = module_of(filled) or ("", {})
    bases = [folder, *list(folder.resolve().parents)[:_UPWARDS]]
    tree = next((base / _TREE for base in bases if (base / _TREE).is_dir()), None)
    files: dict[str, Any] = {}
    for key, kind in _FOLDERS.items():
        file = PurePosixPath(str(module.get(key)))
        if file.suffix not in (".yaml", ".yml") or file.is_absolute() or ".." in file.parts:
            continue
        places = [folder / file] if tree is None else [folder / file, tree / kind / str(module["framework"]) / file]
        path = next((place for place in places if is_file(place)), None)
        if path is not None:
            files[key] = _fill_variables(_with_bases(path, tree or folder, []), environment)
    return {**filled, "modules": {**filled["modules"], name: {**module, OPENED: files}}}


def _with_bases(path: Path, tree: Path, above: list[Path]) -> dict[str, Any]:
    """A file's fields over those of the files that it extends, in their order."""
    if path in above or len(above) > _MOST_FILES:
        raise SpecError(str(path), "extends itself", "files that extend each other in one direction")
    table = read_table(path)
    bases = [name for key in _EXTENDS for name in _names(table.pop(key, None))]
    fields: dict[str, Any] = {}
    for name in bases[:_MOST_FILES]:
        base = path.parent / name
        if base.suffix in (".yaml", ".yml") and is_file(base) and base.resolve().is_relative_to(tree.resolve()):
            fields = merge(fields, _with_bases(base, tree, [*above, path]))
        else:
            raise SpecError(f"{path.name}: extends", name, f"a file at {name} from {path.parent.name}/", "Add it to that folder.")
    return merge(fields, table)


def _names(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if isinstance(value, str) else []


def _fill_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """Values with the environment's variables or their defaults in place; a text that is one variable becomes a YAML value."""
    if isinstance(value, Mapping):
        return {key: _fill_variables(one, environment) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill_variables(one, environment) for one in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    text = _VARIABLE.sub(lambda match: environment.get(match[1], match[0] if match[2] is None else match[2]), value)
    return _scalar(text) if _VARIABLE.fullmatch(value) else text


def _scalar(text: str) -> Any:
    """A text of the environment as YAML reads it: null, true, false, a number, or itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if re.fullmatch(r"[+-]?\d{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?\d{1,15}(\.\d{0,15})?(e[+-]?\d{1,2})?", text) else text
