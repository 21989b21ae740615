"""A change of a job in the words of the framework that runs it: Megatron-LM's flags, torchtitan's options, DeepSpeed's keys.

flags.toml has the words; here is what reads them, and what depends on more of the job than the value.

Names: Megatron-LM `megatron/training/arguments.py`, Megatron-Bridge's `ConfigContainer` and `CommOverlapConfig`, torchtitan
`config/job_config.py`, DeepSpeed's configuration reference, PyTorch's FSDP. A field that a framework has no word for is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from windtunnel.base.files import table_beside
from windtunnel.spec import Job

Writer = Callable[[Job, Any], str | None]
"""(job with the change, value) -> what to type, or None where the framework has no word for this value."""


def flags_of(job: Job, fields: Sequence[tuple[str, Any]]) -> tuple[str, ...]:
    """What to give the framework of `job`, which has the new values, for `fields`; empty if it has a word for none of them."""
    table = framework_table(job) or {}
    written = (table[path](job, value) for path, value in fields if path in table and value is not None)
    return tuple(dict.fromkeys(text for text in written if text))


def framework_table(job: Job) -> Mapping[str, Writer] | None:
    """The words of the job's tool, else of its framework, by field; None for one whose words are not known."""
    return _tables().get(job.runtime.tool or "") or _tables().get(job.runtime.framework)


def framework_name(job: Job) -> str:
    """What the users of a tool, or of a framework, call it."""
    known, framework = table_beside(__file__)["frameworks"], job.runtime.framework
    return str((known.get(job.runtime.tool or "") or known.get(framework, {})).get("name", framework))


@cache
def _tables() -> dict[str, dict[str, Writer]]:
    """Framework of the catalogue -> field -> how to write it."""
    data = table_beside(__file__)
    names = dict.fromkeys((*data, *_OF_JOBS))
    parts = {name: {path: _writer(said) for path, said in data.get(name, {}).items()} | _OF_JOBS.get(name, {}) for name in names}
    return {
        framework: {path: writer for part in entry["of"] for path, writer in parts[part].items()}
        for framework, entry in data["frameworks"].items()
    }


def _writer(said: str | Mapping[str, str]) -> Writer:
    """Of a template, or of what to type by value; a switch has "true" and "false"."""
    if isinstance(said, str):
        return lambda _, value: said.format(value=_word(value), joined=str(value).replace("_", ""))
    return lambda _, value: said.get(_word(value))


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _megatron_vpp(job: Job, value: int) -> str | None:
    layers, parts = job.model.layers, job.plan.pp * value
    return f"--num-layers-per-virtual-pipeline-stage {layers // parts}" if value > 1 and layers % parts == 0 else None


def _megatron_recompute_layers(job: Job, value: int) -> str | None:
    return f"--recompute-method block --recompute-num-layers {value}" if job.plan.recompute == "full" else None


def _megatron_stages(job: Job, value: tuple[int, ...]) -> str | None:
    """Fewer layers at the ends have flags of their own; other layouts are written out."""
    if job.plan.vpp == 1 and len(set(value[1:-1])) <= 1:
        return f"--decoder-first-pipeline-num-layers {value[0]} --decoder-last-pipeline-num-layers {value[-1]}"
    layers = ["t" * count for count in value]
    layers[0], layers[-1] = f"E{layers[0]}", f"{layers[-1]}L"
    return f"--pipeline-model-parallel-layout {'|'.join(layers)}"


def _modules(word: str, joint: str, end: str = "") -> Writer:
    """Only where they are run again."""
    return lambda job, value: f"{word}{joint.join(value)}{end}" if job.plan.recompute == "selective" else ""


def _accumulation(job: Job) -> str:
    """Micro batches of a step, as all tools on transformers' Trainer name them."""
    return f"gradient_accumulation_steps: {max(1, job.plan.global_batch // (job.plan.micro_batch * job.dp))}"


def _of_samples(job: Job, value: int) -> str:
    name = {"axolotl": "micro_batch_size", "torchtune": "batch_size"}.get(job.runtime.tool or "", "per_device_train_batch_size")
    return f"{name}: {value} {_accumulation(job)}"


_FACTORY_OFFLOAD = "deepspeed: examples/deepspeed/ds_z{}_offload_config.json"

_OF_JOBS: dict[str, dict[str, Writer]] = {
    "accumulates": {"plan.micro_batch": _of_samples, "plan.global_batch": lambda job, _: _accumulation(job)},
    "llama-factory": {
        "plan.offload.optimizer": lambda job, value: (
            _FACTORY_OFFLOAD.format(3 if job.plan.sharding == "zero3" else 2) if value == "host" else None
        ),
        "plan.offload.parameters": lambda _, value: _FACTORY_OFFLOAD.format(3) if value == "host" else None,
    },
    "ms-swift": {
        "plan.offload.optimizer": lambda job, value: (
            f"--deepspeed zero{3 if job.plan.sharding == 'zero3' else 2}_offload" if value == "host" else None
        ),
        "plan.offload.parameters": lambda _, value: "--deepspeed zero3_offload" if value == "host" else None,
    },
    "megatron": {
        "plan.vpp": _megatron_vpp,
        "plan.recompute_layers": _megatron_recompute_layers,
        "plan.recompute_modules": _modules("--recompute-modules ", " "),
        "plan.stages": _megatron_stages,
        "plan.offload.optimizer_fraction": lambda _, value: f"--optimizer-offload-fraction {value}" if value < 1.0 else None,
        "plan.offload.activations": lambda _, value: f"--cpu-offloading --cpu-offloading-num-layers {value}" if value else None,
    },
    "torchtitan": {
        "plan.micro_batch": lambda job, value: f"--training.local_batch_size {value}" if job.plan.pp == 1 else None,
        "plan.vpp": lambda job, value: (
            f"--parallelism.pipeline_parallel_layers_per_stage {-(-job.model.layers // (job.plan.pp * value))}"
        ),
    },
    "fsdp": {"runtime.reshard_after_forward": lambda _, value: f"reshard_after_forward={value}"},
    "bridge": {
        "plan.recompute_layers": lambda job, value: (
            f"model.recompute_method=block model.recompute_num_layers={value}" if job.plan.recompute == "full" else None
        ),
        "plan.recompute_modules": _modules("model.recompute_modules=[", ",", "]"),
    },
}
"""Part of flags.toml -> field -> how to write it, where that depends on more than the value."""
