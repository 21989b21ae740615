"""Trainers whose configurations are read by a table of their keys (tool_files.toml): torchtune, NeMo Automodel, prime-rl, Levanter,
MaxText, LitGPT. A command that starts one is its configuration with what the command changes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.hub_names import USUAL, find_named, unknown_model, vocabulary_of_name
from windtunnel.formats.jobs.imported import Imported, Stated
from windtunnel.formats.jobs.keys import Keys, interpolate
from windtunnel.formats.jobs.launched import KEY, Launched, launcher_of
from windtunnel.formats.jobs.several import plan_of
from windtunnel.formats.jobs.trainer_keys import LINEARS, experts_of, first_count
from windtunnel.spec import Job, Model, Plan, Runtime, check, load_model, load_runtime
from windtunnel.spec.loading.files import SUFFIXES, read_table
from windtunnel.spec.model import Lora

TOOL = "started_tool"
"""Where a table that was made of a command names its tool."""
BENCHMARKS = "benchmark_runner"
"""The program that starts a tool's benchmarks by their names."""
DEVICES = "devices_a_chip"
"""Where it has how many devices JAX sees in a chip."""
_SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
_HALF = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "torch.bfloat16": "bf16", "half": "fp16"}
_OFF = (None, False, "", "none", "null", "false", "no", 0)


@dataclass(frozen=True)
class ToolFile:
    """A trainer: what its table in tool_files.toml says."""

    name: str
    title: str
    marks: tuple[tuple[str, ...], ...]
    program: re.Pattern[str] | None
    entry: str
    states: str
    read: Mapping[str, tuple[str, ...]]
    meaning: Mapping[str, Mapping[str, str]]
    taken: Mapping[str, Any]
    starts: tuple[tuple[str, ...], ...] = ()
    switches: Mapping[str, str] = field(default_factory=dict)
    first: str = ""
    by_device: bool = False
    flags: frozenset[str] = frozenset()

    def value(self, keys: Keys, field: str) -> Any:
        """What the file says of a field; None where it says nothing."""
        return next((value for value in [keys.get(path) for path in self.read.get(field, ())] if value is not None), None)

    def count(self, keys: Keys, field: str) -> int | None:
        """A whole number of 1 or more; -1 and "auto" leave it to the tool."""
        paths = [path for path in self.read.get(field, ()) if keys.get(path) not in (-1, "-1")]
        return first_count(keys, paths)


@cache
def tools() -> tuple[ToolFile, ...]:
    """All tools of tool_files.toml."""
    return tuple(_tool(name, said) for name, said in table_beside(__file__).items())


def _tool(name: str, said: Mapping[str, Any]) -> ToolFile:
    program = re.compile(said["program"]) if "program" in said else None
    read = {field: tuple(paths) for field, paths in said["read"].items()}
    marks, starts = (tuple(map(tuple, said.get(key, ()))) for key in ("marks", "starts"))
    return ToolFile(
        name, said["title"], marks, program, said["entry"], said["states"], read, said.get("meaning", {}), said.get("taken", {}),
        starts, said.get("switches", {}), said.get("first", ""), said.get("by_device", False),
        frozenset(said.get("flags", ())),
    )  # fmt: skip


def tool_of_table(table: Mapping[str, Any]) -> ToolFile | None:
    """The tool whose file a table is; None for another."""
    named = table.get(TOOL)
    keys = Keys(table)
    for tool in tools():
        if named == tool.name or named is None and any(all(keys.get(path) is not None for path in mark) for mark in tool.marks):
            return tool
    return None


def recognises_table(table: Mapping[str, Any]) -> bool:
    """Whether a table is a configuration of one of the tools, and no job file of ours."""
    return not {"plan", "cluster", "base"} & set(table) and tool_of_table(table) is not None


def table_of_command(words: Sequence[str], environment: Mapping[str, str], folder: Path | None) -> Mapping[str, Any] | None:
    """The configuration of a command that starts one of the tools; None for another command. `folder`: where its files lie."""
    flags = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    for place, word in enumerate(words):
        for tool in tools():
            named = tool.program is not None and tool.program.search(word) is not None
            named = named or bool(tool.flags) and tool.flags <= flags and word.endswith(".py")
            verb = (word.rpartition("/")[2], *words[place + 1 : place + 2])
            if not named and verb not in tool.starts:
                continue
            table = _table_of_words(words[place + 1 :], folder)
            behind = "" if named else next(iter(words[place + 2 :]), "-")
            if tool.first and re.match(r"[\w./]", behind) and not behind.endswith(SUFFIXES):
                table.setdefault(tool.first, behind)
            if "lora_rank" in tool.taken:
                table.setdefault(tool.read["lora_rank"][0], tool.taken["lora_rank"])
            recipe = next((str(table[key]) for key in ("config", "config_path") if isinstance(table.get(key), str)), "")
            if tool.name == "torchtune" and "model" not in table and recipe:  # llama3_1/8B_lora is of its own configurations
                table["model"] = recipe.replace("/", "_")
            if named and BENCHMARKS in word:
                table |= _table_of_words(_named_recipe(tool, str(table.get("model_name", ""))).split(), None)
            counts = launcher_of(words[:place] if named else words, environment, folder).as_table()
            return {TOOL: tool.name, **counts, **_count_slices(words), **table}
    return None


def _table_of_words(words: Sequence[str], folder: Path | None) -> dict[str, Any]:
    """A configuration by the words behind its program: a file (`-c FILE`, `@ FILE`, FILE), `key=value` and `--key value`."""
    table: dict[str, Any] = {}
    name = ""
    for word in words:
        head, equals, value = word.lstrip("-").lstrip("~+").partition("=")
        if word.lstrip("@").endswith(SUFFIXES) and not equals:
            path = None if folder is None else next((at for at in (folder / word, folder / Path(word).name) if at.is_file()), None)
            table = {**(dict(read_table(path)) if path is not None else {}), **table}
            if name:
                table[name] = word
            name = ""
        elif equals and re.fullmatch(r"[A-Za-z_][\w.]*", head):
            _put(table, head, _parse_value(value))
            name = ""
        elif word.startswith("-"):
            name = head.replace("-", "_")
            _put(table, name, True)
        elif name:
            _put(table, name, _parse_value(word))
            name = ""
    return table


def _named_recipe(tool: ToolFile, name: str) -> str:
    """What one of the tool's benchmarks sets. UnknownName for a name that it does not have."""
    recipes = {
        re.sub(r"[-.]", "_", known): str(line) for known, line in table_beside(__file__, "tool_recipes").get(tool.name, {}).items()
    }
    if (wanted := re.sub(r"[-.]", "_", name)) not in recipes:
        raise UnknownName("--model_name", name, sorted(recipes))
    return recipes[wanted]


def _count_slices(words: Sequence[str]) -> dict[str, Any]:
    """The chips of the TPU slices that a command asks for, `--device-type=v6e-256 --num-slices=2`, and their devices."""
    said = {head.lstrip("-").replace("_", "-"): value for head, _, value in (word.partition("=") for word in words)}
    match = re.fullmatch(r"([a-z]+\d*\w*?)-(\d{1,5}(?:x\d{1,4})*)", said.get("device-type", ""))
    if match is None or match[1] not in table_beside(__file__, "tool_recipes")["slices"]:
        return {}
    chips, devices = table_beside(__file__, "tool_recipes")["slices"][match[1]]
    slices = int(said["num-slices"]) if said.get("num-slices", "").isdecimal() else 1
    return {"num_processes": max(1, int(math.prod(map(int, match[2].split("x"))) * chips) * slices), DEVICES: devices}


def _put(table: dict[str, Any], path: str, value: Any) -> None:
    """Sets a value at a dotted path."""
    *above, last = path.split(".")
    for part in above:
        inner = table.get(part)
        table[part] = inner = dict(inner) if isinstance(inner, Mapping) else {}
        table = inner
    table[last] = value


def _parse_value(text: str) -> Any:
    if re.fullmatch(r"\[.*\]", text):
        return [part.strip(" '\"") for part in text[1:-1].split(",") if part.strip()]
    return plain_value(text)


def plain_value(text: str) -> Any:
    """A number or a truth where a text is one."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text


def import_table(table: Mapping[str, Any], on: Job | None = None, stated: Stated | None = None) -> Imported:
    """Model, plan and runtime; with `on`, also a job on that job's cluster. What the user has `stated` beats the file."""
    stated, assumed = stated or Stated(), list[str]()
    tool = tool_of_table(table)
    assert tool is not None
    keys = Keys(interpolate(table))
    for path in (TOOL, KEY, DEVICES, "num_processes", "config", "config_path"):
        keys.get(path)
    model = _with_adapters(tool, keys, _model(tool, keys, stated, assumed), assumed)
    plan = _plan(tool, keys, model, on, stated, assumed)
    runtime = _runtime(tool, keys, plan, assumed)
    assumed.append(f"software: the catalogue's {tool.entry}, the nearest to {tool.title}" if tool.entry != tool.name else "")
    job = None
    if on is not None:
        gpus = math.prod((plan.tp, plan.pp, plan.cp, plan.dp or 1))
        steps = tool.count(keys, "steps")
        nouns: dict[str, Any] = {"model": model, "plan": plan, "runtime": runtime}
        nouns["cluster"] = on.cluster.model_copy(update={"gpus": gpus})
        tokens = float(steps * plan.global_batch * plan.seq) if steps else on.tokens
        job = check(Job(name=model.name, tokens=tokens, seed=on.seed, source=f"{tool.title} configuration", **nouns))
    notes = tuple(note for note in assumed if note)
    return Imported(tool.title, model, plan, runtime, job, keys.built(), keys.left_over(), notes)


def _model(tool: ToolFile, keys: Keys, stated: Stated, assumed: list[str]) -> Model:
    """The model by its name, or of its sizes."""
    sizes = {name: tool.count(keys, name) for name in _SIZES}
    missing = next((name for name in ("layers", "hidden", "heads", "ffn") if sizes[name] is None), None)
    name = tool.value(keys, "model")
    if isinstance(name, Mapping):
        name = None
    if stated.model is not None:
        return stated.model
    if isinstance(name, str) and name not in ("default", "None", ""):
        bare = name.rpartition(".")[2] if name.startswith("torchtune.") else name
        bare = re.sub(r"^(?:q?lora|dora|full)_|_(?:lora|qlora|dora|full)(?:_single_device|_multi_node)?$", "", bare)
        found = find_named(table_beside(__file__, "tool_recipes")["models"].get(tool.name, {}).get(bare, bare))
        if found is None and missing is not None:
            raise unknown_model(tool.read["model"][0], bare)
        if found is not None:
            assumed += [f"model {found.model.name} of the catalogue, for {name}", *found.notes]
            return found.model
    if missing is not None:
        where = tool.read.get("model", tool.read.get(missing, ("model",)))[0]
        hint = "Give the model beside it: --model NAME or --model CONFIG.JSON."
        if isinstance(beside := keys.get("config"), str):
            hint = f"{beside[:80]} is not beside the command. {hint}"
        raise SpecError(where, Nothing(), f"a model's name, or its sizes, in a file of {tool.title}", hint)
    vocab = sizes["vocab"] or tool.taken.get("vocab")
    if vocab is None:
        named = str(tool.value(keys, "tokenizer") or "")
        vocab = vocabulary_of_name(named) if named else None
        assumed.append(f"vocabulary {vocab or USUAL}, {f'that of {named}' if vocab else 'a guess'} (--set model.vocab=N)")
    kind = str(tool.value(keys, "kind") or "llama").lower()
    gpt2 = kind in ("gpt2", "gpt")
    shape = {name: size for name, size in sizes.items() if size is not None}
    seq = tool.count(keys, "seq") or int(tool.taken["seq"])
    return load_model(
        {
            **shape, "vocab": vocab or USUAL, "max_seq": seq, "name": f"{tool.name}-{sizes['hidden']}x{sizes['layers']}",
            "activation": "gelu" if gpt2 else "swiglu", "norm": "layernorm" if gpt2 else "rmsnorm", "linear_bias": gpt2,
            "position": "learned" if gpt2 else "rope", "tied_embeddings": gpt2, "source": f"{tool.title} configuration",
        }
    )  # fmt: skip


def _with_adapters(tool: ToolFile, keys: Keys, model: Model, assumed: list[str]) -> Model:
    """The model with the adapters that the file asks for."""
    rank = tool.count(keys, "lora_rank")
    if rank is None:
        named = str(tool.value(keys, "model") or "")
        if "lora" not in named:
            return model
        rank = 8
        assumed.append("adapters of rank 8, as the configuration's name says adapters")
    listed = tool.value(keys, "lora_targets")
    if tool.switches:
        said = {path: keys.get(path) for path in tool.switches}
        listed = [word for path, word in tool.switches.items() if (said[path] if said[path] is not None else path in tool.taken)]
    words = {str(word).rpartition(".")[2].strip("*") for word in listed} if isinstance(listed, list) else set[str]()
    targets = {LINEARS[word] for word in words if word in LINEARS}
    if tool.value(keys, "lora_mlp") is True:
        targets |= {"linear_fc1", "linear_fc2"}
    if tool.value(keys, "lora_all") is True or not targets:
        targets = set(LINEARS.values())
        assumed.append("adapters on all linear modules")
    dropout = tool.value(keys, "lora_dropout")
    fields: dict[str, Any] = {"rank": rank, "targets": sorted(targets), "separate": True}
    fields["dropout"] = isinstance(dropout, float) and dropout > 0
    base = tool.value(keys, "base")
    if isinstance(base, str) and base.startswith("bnb."):
        fields["base"] = {"nf4": "nf4", "fp4": "nf4"}.get(base[4:].partition("-")[0], "int8")
        fields["double_quant"] = base.endswith("-dq")
    if "qlora" in str(tool.value(keys, "model") or "") or base is True:
        fields |= {"base": "nf4", "double_quant": True, "base_sharded": True}
    if model.experts:
        fields["experts"] = experts_of(model)
    return model.model_copy(update={"lora": Lora.model_validate(fields)})


def _plan(tool: ToolFile, keys: Keys, model: Model, on: Job | None, stated: Stated, assumed: list[str]) -> Plan:
    tp, pp, cp, ep = (stated.whole_number(f"plan.{axis}") or tool.count(keys, axis) or 1 for axis in ("tp", "pp", "cp", "ep"))
    gpus = _gpus(tool, keys, on, stated, assumed, math.lcm(tp * pp * cp, ep))
    if gpus is None:
        raise SpecError("cluster.gpus", Nothing(), "how many GPUs: --set cluster.gpus=N, or a machine with --on")
    if gpus % (tp * pp * cp):
        raise SpecError("cluster.gpus", gpus, f"a multiple of tp x pp x cp = {tp * pp * cp}")
    dp = gpus // (tp * pp * cp)
    share = None if tool.by_device else tool.count(keys, "micro_batch")
    taken = {"micro_batch": stated.whole_number("plan.micro_batch") or share or _share_of_devices(tool, keys, tp * pp * cp, pp),
             "seq": stated.whole_number("plan.seq") or tool.count(keys, "seq")}  # fmt: skip
    batch = stated.whole_number("plan.global_batch") or tool.count(keys, "global_batch")
    if taken["micro_batch"] is None and batch is not None and "micro_batch" not in tool.taken:
        taken["micro_batch"] = max(1, batch // dp)
        assumed.append(f"micro batch {taken['micro_batch']}: the whole share of a GPU at once (--set plan.micro_batch=N)")
    for name, value in taken.items():
        if value is None:
            taken[name] = int(tool.taken[name])
            assumed.append(f"{name.replace('_', ' ')} {taken[name]}, {tool.title}'s usual (--set plan.{name}=N)")
    if batch is None and "global_batch" in tool.taken:
        batch = int(tool.taken["global_batch"])
        assumed.append(f"global batch {batch}, {tool.title}'s usual (--set plan.global_batch=N)")
    micro, seq = taken["micro_batch"] or 1, taken["seq"]
    parts = (tool.count(keys, "pipeline_parts") or pp) if tool.by_device else 1
    batch = batch or micro * parts * dp * (tool.count(keys, "accumulation") or 1)
    replicate = tool.count(keys, "replicate") or 1
    recompute = _recompute(tool, keys, assumed, alone=gpus == 1)
    offload: dict[str, Any] = {}
    if tool.value(keys, "offload") is True:
        offload |= {"optimizer": "host", "parameters": "host"}
    if tool.value(keys, "offload_activations") not in _OFF and recompute == "full":
        offload["activations"] = model.layers
    hybrid = 1 < replicate < dp and dp % replicate == 0
    return plan_of({
        "tp": tp, "pp": pp, "cp": cp, "ep": ep if ep > 1 else None, "dp": dp,
        "micro_batch": micro, "global_batch": batch, "seq": seq,
        "sharding": "hsdp" if hybrid else "fsdp" if dp * cp > 1 else "none", "shard_group": dp // replicate if hybrid else None,
        "sequence_parallel": tp > 1, "recompute": recompute, "offload": offload or None,
    })  # fmt: skip


def _share_of_devices(tool: ToolFile, keys: Keys, copy: int, pp: int) -> int | None:
    """Samples of a micro batch, of a batch that is stated for each device, in fractions too: a copy of the model has the samples of
    all of its devices (MaxText's `global_batch_size_to_load`). None where nothing states it."""
    value = tool.value(keys, "micro_batch")
    if value is None or not tool.by_device:
        return None
    each = float(value) if re.fullmatch(r"\d{1,6}(\.\d{1,9})?", str(value)) else 0.0
    whole = each * copy * (first_count(keys, (DEVICES,)) or 1) / (tool.count(keys, "pipeline_parts") or pp)
    if whole < 1 or whole != int(whole):
        allowed = f"a number whose product with the {copy} GPUs of a copy is whole samples"
        raise SpecError(tool.read["micro_batch"][0], value, allowed)
    return int(whole)


def _gpus(tool: ToolFile, keys: Keys, on: Job | None, stated: Stated, assumed: list[str], copy: int) -> int | None:
    """GPUs that the user, the launcher or the file states; else some of the machine, which `assumed` says."""
    said = Launched.of_table(keys.table)
    total = first_count(keys, ("num_processes",)) or tool.count(keys, "gpus")
    nodes, per_node = tool.count(keys, "nodes") or said.nodes, tool.count(keys, "per_node") or said.per_node
    if total is None and per_node is None and "per_node" in tool.taken and stated.own_gpus is None:
        per_node = int(tool.taken["per_node"])
        assumed.insert(0, f"{per_node} GPU a node, {tool.title}'s usual (--set cluster.gpus=N)")
    degrees = [keys.get(path) for path in tool.read.get("degrees", ())]
    if total is None and any(isinstance(value, int) for value in degrees) and -1 not in degrees and "-1" not in degrees:
        total = math.prod(value for value in degrees if isinstance(value, int) and value > 0)
        if total > 1 and stated.own_gpus is None:
            assumed.insert(0, f"{total} GPUs, the product of the degrees (--set cluster.gpus=N)")
        total = total if total > 1 else None
    return stated.gpus_of(Launched(total, nodes, per_node, said.unset), on, assumed, copy)


def _recompute(tool: ToolFile, keys: Keys, assumed: list[str], alone: bool) -> str:
    value = tool.value(keys, "recompute")
    if value is None:
        taken = str(tool.taken.get("recompute_alone", tool.taken["recompute"]) if alone else tool.taken["recompute"])
        assumed.append(f"recompute {taken}, {tool.title}'s own where its file is silent (--set plan.recompute=…)")
        return taken
    if isinstance(value, Mapping):
        value = value.get("mode") or "full"
    if value in _OFF or str(value).lower() in _OFF:
        return "none"
    meanings = tool.meaning.get("recompute", {})
    name = str(value).lower()
    if meanings and name not in meanings and not isinstance(value, bool):
        assumed.append(f"recompute full, in place of {name[:40]}")
    return meanings.get(name, "selective" if name in ("selective", "op") else "full")


def _runtime(tool: ToolFile, keys: Keys, plan: Plan, assumed: list[str]) -> Runtime:
    named = str(tool.value(keys, "precision") or tool.taken.get("precision", "bf16")).lower()
    precision = _HALF.get(re.sub(r"-(?:true|mixed)$", "", named), "fp32" if "32" in named else "bf16")
    if "fp8" in str(tool.value(keys, "quantization") or ""):
        precision = "fp8"
    compiled = tool.value(keys, "compile") not in _OFF or tool.taken.get("compile") is True
    fields: dict[str, Any] = {"precision": precision, "tool": tool.name}
    if tool.entry != "maxtext":
        fields["launch"] = "compile" if compiled else "eager"
    stated = str(tool.value(keys, "weights") or "")
    whole = tool.states == "half" or tool.states == "named" and named.endswith("-true")
    if whole and precision in ("bf16", "fp16") or _HALF.get(stated.lower()):
        half = _HALF.get(stated.lower(), precision)
        fields |= {"master_weights": False, "weight_dtype": half, "gradient_dtype": half}
        fields |= {"exp_avg_dtype": half, "exp_avg_sq_dtype": half}
        assumed.append(f"trained weights, gradients and moments in {half}, as {tool.title} loads them")
    if (reduced := _HALF.get(str(tool.value(keys, "reduce") or "").lower())) is not None:
        fields["reduce_dtype"] = reduced
    loss = str(tool.value(keys, "loss") or "")
    meant = next((kind for word, kind in tool.meaning.get("loss", {}).items() if word in loss), "")
    if meant == "linear" or "LinearCrossEntropy" in loss or loss in ("liger", "liger_fused"):
        fields["cross_entropy"] = "linear"
    elif "ChunkedOutput" in loss:
        fields["loss_parts"] = 8
    elif (parts := tool.count(keys, "loss_parts")) is not None:
        fields["loss_parts"] = parts
    elif "loss_tokens" in tool.taken:
        fields["loss_parts"] = max(1, plan.micro_batch * plan.seq // int(tool.taken["loss_tokens"]))
    elif meant == "chunked" or "Chunked" in loss:
        fields["cross_entropy"] = "chunked"
    optimizer = str(tool.value(keys, "optimizer") or "adamw").lower()
    fields["optimizer"] = next((kind for kind in ("adafactor", "sgd", "muon", "lamb") if kind in optimizer), "adam")
    if "8bit" in optimizer:
        fields |= {"exp_avg_dtype": "int8", "exp_avg_sq_dtype": "int8"}
    if isinstance(fused := tool.value(keys, "fused"), bool):
        fields["fused_optimizer"] = fused
    if tool.value(keys, "in_backward") is True:
        fields["optimizer_in_backward"] = True
    attention = str(tool.value(keys, "attention") or "").lower()
    if "flash_attention_3" in attention:
        fields["attention_library"] = "fa3"
    return load_runtime(tool.entry, **fields)
