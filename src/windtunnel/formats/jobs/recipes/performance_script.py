"""Command lines of Megatron-Bridge's performance scripts: `setup_experiment.py` and `run_script.py` of `scripts/performance`.

A recipe is chosen by model, task, GPU, precision and number of GPUs; the line's options change it, and its `section.field=value`
change that (`scripts/performance/README.md`). `performance_script.toml` has the recipes, as lines of the same script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.recipes import megatron_bridge
from windtunnel.formats.jobs.recipes.reader import Recipe
from windtunnel.formats.jobs.recipes.values import Made, literal, pair_of
from windtunnel.formats.jobs.scripts.command import ScriptCommands
from windtunnel.formats.jobs.scripts.missing_arguments import unset_names
from windtunnel.spec import Job

_MARK = re.compile(r"(?<!\S)--?(?:model_recipe_name|mr|model_size)[ =]")
_NAMES = ("--model_recipe_name", "-mr", "--model_size")
_OVERRIDE = re.compile(r"[+~]{0,2}([a-z_]+(?:\.\w+)+)=(.*)", re.DOTALL)
_OFF = ("false", "0", "f", "no", "n", "none", "")
_MAY_BE_OPEN = ("max_steps", "num_gpus")
_OF_A_LAYOUT = ("pipeline_model_parallel_layout", "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
_CUT = ("pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size")


def starts_recipe(text: str) -> bool:
    """Whether a text has a line of the performance scripts somewhere."""
    return _MARK.search(text) is not None


def command_of(script: ScriptCommands) -> list[str] | None:
    """The words of the script's command that names a recipe, from its options on; None where there is none."""
    for words in script.commands:
        heads = {word.partition("=")[0] for word in words}
        if heads & set(_NAMES) and heads & {"--num_gpus", "-ng", "--compute_dtype", "-c"}:
            begin = next((at for at, word in enumerate(words) if word.endswith(".py")), -1)
            return list(words[begin + 1 :])
    return None


def from_command(words: Sequence[str], on: Job | None, stated: Stated | None) -> Imported:
    """The job of a command's options; with `on`, on that job's machine.

    Raises `SpecError` for a variable that nothing sets and for a model that is not known.
    """
    options, overrides = _split(words)
    options = {option: said for option, said in options.items() if option not in _MAY_BE_OPEN or "$" not in said}
    _check_set(options)
    name, task, gpu, precision = _choice(options)
    key, base, assumed = _base(name, task, gpu, precision, options)
    usual, of_recipe = _split(shlex.split(base))
    fields = {**_fields(usual), **_literals(of_recipe)}
    asked = {**_fields(options), **_literals(overrides)}
    if any(f"model.{one}" in asked and asked[f"model.{one}"] != fields.get(f"model.{one}") for one in _CUT):
        for one in _OF_A_LAYOUT:
            fields.pop(f"model.{one}", None)
    if key and "global_batch_size" not in options:
        assumed += _scale_batch(fields, asked, int(key.partition("gpu")[0]))
    fields |= asked
    if fields.get("model.pipeline_model_parallel_size", 1) == 1 and "virtual_pipeline_model_parallel_size" not in options:
        fields.pop("model.virtual_pipeline_model_parallel_size", None)
    fields["model.sequence_parallel"] = fields.get("model.tensor_model_parallel_size", 1) != 1
    value = Made(name)
    for path, one in fields.items():
        value.put(path, one)
    value.fields["mixed_precision"] = Made("perf_precision", [precision], value.fields.pop("mixed_precision", Made("")).fields)
    if task == "peft":
        value.fields["peft"] = Made("lora")
    imported = megatron_bridge.from_recipe(Recipe(name, value, [], []), on, stated)
    known = table_beside(__file__)["options"]
    idle = [f"--{option} {said}".rstrip() for option, said in options.items() if option not in known]
    return imported.with_notes(idle, assumed)


def _split(words: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options by their long names, and the fields that are set by path."""
    short = {said[0]: option for option, said in table_beside(__file__)["options"].items() if said[0]}
    options: dict[str, str] = {}
    overrides: dict[str, str] = {}
    last = ""
    for word in words:  # one value an option; of a variable that is not set and stands alone, a shell leaves nothing
        head, equals, behind = word.partition("=")
        if (found := _OVERRIDE.fullmatch(word)) is not None:
            overrides[found[1]] = found[2]
        elif head.startswith("--") or head in short:
            last = short.get(head, head.lstrip("-").replace("-", "_"))
            options[last] = behind if equals else ""
        elif last and not options[last]:
            options[last] = word
    return options, overrides


def _check_set(options: Mapping[str, str]) -> None:
    """Refuses variables that nothing sets, in options that a step depends on: all at once."""
    known = table_beside(__file__)["options"]
    unset = [name for option in known for name in unset_names(options.get(option, ""))]
    if unset:
        names = list(dict.fromkeys(unset))
        given = " ".join(f"{name}=…" for name in names)
        raise SpecError("FILE", Nothing(), f"what {', '.join(names)} stand for", f'In quotes before the script: "{given} SCRIPT".')


def _choice(options: Mapping[str, str]) -> tuple[str, str, str, str]:
    """(recipe, task, GPU, precision) that a line asks for."""
    size = [options[one] for one in ("model_name", "model_size") if options.get(one)]  # before 0.3
    name = (options.get("model_recipe_name") or "_".join(size)).lower()
    if not name:
        raise SpecError("--model_recipe_name", Nothing(), "a recipe such as llama3_70b")
    choice = table_beside(__file__)["choice"]
    task = options.get("task", "pretrain").lower()
    precision = options.get("compute_dtype", "bf16").lower()
    if precision == "fp8":  # before 0.3 the recipe of FP8 was an option of its own
        precision = f"fp8_{options.get('fp8_recipe', 'cs')}"
    for option, said, allowed in (("task", task, choice["tasks"]), ("compute_dtype", precision, choice["precisions"])):
        if said not in allowed:
            raise UnknownName(f"--{option}", said, list(allowed))
    return name, choice["tasks"][task], options.get("gpu", "").lower(), precision


def _base(name: str, task: str, gpu: str, precision: str, options: Mapping[str, str]) -> tuple[str, str, list[str]]:
    """(name, line, what is assumed) of the recipe that the script would take; of none, nothing."""
    table = table_beside(__file__)
    listed: dict[str, str] = table["recipes"].get(f"{name}_{task}", {})
    lines = {one: words for names, words in listed.items() for one in names.split()}
    gpus = options.get("num_gpus", "")
    plain = [f"gpu_{gpu}_{kind}" for kind in (precision.replace("_", ""), "bf16")]
    for end in (f"{plain[0]}_{options.get('config_variant', '').lower()}", *plain):
        counts = sorted(int(one.removesuffix(end)) for one in lines if one.endswith(end))
        if counts:
            smallest = f"{name}_{task}" in table["choice"]["smallest"]
            count = int(gpus) if gpus.isdecimal() and int(gpus) in counts else counts[0 if smallest else -1]
            said = f"what the line leaves out, as Megatron-Bridge's recipe {name}_{task}_{count}{end} has it"
            return f"{count}{end}", f"{listed.get('all', '')} {lines[f'{count}{end}']}", [said]
    return "", "", [f"degrees of 1 where the line sets none: no performance recipe of {name} for {task} on {gpu or 'no GPU'}"]


def _fields(options: Mapping[str, str]) -> dict[str, Any]:
    """What options set, by path."""
    table = table_beside(__file__)["options"]
    fields: dict[str, Any] = {}
    for option, said in options.items():
        _, *sets = table.get(option, [""])
        if option == "moe_flex_dispatcher_backend" and said.lower() in _OFF:
            fields |= {"model.moe_token_dispatcher_type": "alltoall", "model.moe_flex_dispatcher_backend": None}
        elif said.lower() not in _OFF or option in (*_CUT, "cuda_graph_impl"):
            fields |= dict(pair_of(one.replace("{}", said)) for one in sets)
    return fields


def _literals(overrides: Mapping[str, str]) -> dict[str, Any]:
    return {path: literal(said) for path, said in overrides.items()}


def _scale_batch(fields: dict[str, Any], asked: Mapping[str, Any], gpus: int) -> list[str]:
    """Sets the recipe's global batch for as many data-parallel ranks as the line's GPUs make; what it says where they differ."""
    batch, wanted = fields.get("train.global_batch_size"), asked.get("dist.world_size", gpus)
    cut = [f"model.{one}_parallel_size" for one in ("tensor_model", "pipeline_model", "context")]
    before, now = (_product(table.get(one, fields.get(one, 1)) for one in cut) for table in (fields, asked))
    if not (isinstance(batch, int) and isinstance(wanted, int)) or batch * wanted * before % (gpus * now):
        return []
    scaled = fields["train.global_batch_size"] = batch * wanted * before // (gpus * now)
    if scaled == batch:
        return []
    return [f"a global batch of {scaled:,}: the recipe's {batch:,} for as many data-parallel ranks as there are"]


def _product(values: Iterator[Any]) -> int:
    product = 1
    for one in values:
        product *= one if isinstance(one, int) and one > 0 else 1
    return product
