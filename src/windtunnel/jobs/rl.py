"""A job of reinforcement learning from a file of ours, or from an RL trainer's files on a machine, with lengths from a log."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

from windtunnel.base.errors import FileError, SpecError
from windtunnel.base.files import read_text, without_gz
from windtunnel.formats.jobs.rl.script import TOOLS, is_trainer, read_trainer
from windtunnel.formats.jobs.rl.trainer import LENGTHS_ASSUMED, LONGEST_SAMPLES, UPDATE_ALONE
from windtunnel.formats.jobs.scripts.script_call import call_of, file_of
from windtunnel.formats.logs.rl_steps import read_rl_steps
from windtunnel.formats.logs.verl import PHASES
from windtunnel.formats.text.tool_marks import hint_of_text, tool_of_text
from windtunnel.jobs.described import named_model
from windtunnel.jobs.load import load_described_job
from windtunnel.jobs.machines import cluster_table, no_machine
from windtunnel.rl import RLJob, load_rl_job
from windtunnel.rl.job import is_rl
from windtunnel.rl.mode import MODES
from windtunnel.rl.spec import PostTraining
from windtunnel.spec import dump_job, names
from windtunnel.spec.loading.files import SUFFIXES, read_table
from windtunnel.spec.loading.load import override
from windtunnel.spec.loading.resolve import merge

_TYPED = 'a job file with workload = "rl", model, cluster, plan and a table rl (docs/rl.md)'
"""How a step is stated without a file of a trainer."""
LARGEST_LOG = 1 << 28
"""Bytes of a log that is read."""


def load_rl(
    source: str | Path | Mapping[str, Any],
    on: str | Path | None = None,
    overrides: Sequence[str] = (),
    log: str | Path | None = None,
) -> RLJob:
    """The job that `source` describes, also a script with what it is started with, on the machine `on` if it is given. Raises
    WindtunnelError with what to type instead."""
    changes = list(overrides)
    if isinstance(source, Mapping):
        table = dict(source)
    elif call_of(source) is not None:
        return _with_lengths(_from_trainer(Path(source), on, changes), log)
    else:
        path = Path(source)
        if not path.is_file() and (found := _from_model(str(source), on, changes)) is not None:
            return _with_lengths(found, log)
        if not path.is_file():
            raise FileError(
                "JOB",
                str(source),
                f'a model of the catalogue, a job file with workload = "rl", or a script or a configuration of {TOOLS}',
                "There is no such file.",
            )
        if without_gz(path).suffix.lower() not in SUFFIXES:
            return _with_lengths(_from_trainer(path, on, changes), log)
        table = dict(read_table(path))
        if not is_rl(table) and is_trainer(path):
            return _with_lengths(_from_trainer(path, on, changes), log)
    if not is_rl(table):
        text = "" if isinstance(source, Mapping) else read_text(Path(source), LARGEST_LOG, "a configuration")
        if tool_of_text(text) and "workload" not in table:
            raise SpecError("JOB", str(source), f"a script or a configuration of {TOOLS}", hint_of_text(text, _TYPED))
        raise SpecError(
            "workload", table.get("workload"), 'workload = "rl", and a table rl', "`windtunnel predict` takes training jobs."
        )
    if on is not None:
        stated = table.get("cluster")
        gpus = stated.get("gpus") if isinstance(stated, dict) else None
        machine = cluster_table(str(on))
        named = {"base": machine} if isinstance(machine, str) else machine
        table["cluster"] = {**named, "gpus": gpus} if gpus is not None else machine
    return _with_lengths(load_rl_job(table, changes), log)


def _from_model(word: str, on: str | Path | None, changes: list[str]) -> RLJob | None:
    """A step of a model, named as in the catalogue or on a hub, of which nothing else is stated, with what is assumed for it; None
    for other words."""
    model: Any = word
    notes: tuple[str, ...] = ()
    if word not in names("models"):
        if (found := named_model(word)) is None:
            return None
        model, notes = found.model.model_dump(exclude_defaults=True), found.notes
    if on is None:
        raise no_machine()
    name = model if model is word else model["name"]
    whole = load_rl_job({"workload": "rl", "name": name, "model": model, "cluster": cluster_table(str(on))}, changes)
    said = {_field(text) for text in changes}
    settings = {field: getattr(whole.rl, field) for field in ("algorithm", "mode", "prompts", "samples", "prompt", "response")}
    assumed = [f"rl.{field} = {value}" for field, value in settings.items() if f"rl.{field}" not in said]
    return replace(whole, notes=(*notes, *whole.notes, ", ".join(assumed) + ", since nothing states them (--set)"))


def _from_trainer(path: Path, on: str | Path | None, changes: list[str]) -> RLJob:
    """The job of an RL trainer's script or configuration: the update as `windtunnel predict` reads it, and the rest of the step."""
    stated_gpus = next((override(text)["cluster"]["gpus"] for text in reversed(changes) if _field(text) == "cluster.gpus"), None)
    found = read_trainer(path, stated_gpus if isinstance(stated_gpus, int) else None)
    if found is None:
        text = read_text(Path(file_of(str(path))), LARGEST_LOG, "a script")
        hint = hint_of_text(text, _TYPED) if tool_of_text(text) else ""
        if read_rl_steps(path, text):
            hint = f"It is a console log, which stands beside a script: windtunnel rl-predict SCRIPT --on CLUSTER --log {path}."
        raise SpecError("JOB", str(path), f'a job file with workload = "rl", or a script or a configuration of {TOOLS}', hint)
    if on is None:
        raise no_machine()
    own = [text for text in changes if text.strip().startswith("rl.")]
    stated: dict[str, Any] = {"rl": found.table}
    for text in own:
        stated = merge(stated, override(text))
    mode = MODES.find(stated["rl"].get("mode", PostTraining.model_fields["mode"].default), "rl.mode")
    apart = 0 if mode.shares_gpus else stated["rl"].get("rollout", {}).get("gpus", 0)
    apart += sum(group["gpus"] for group in stated["rl"].get("groups", ()))
    total = found.gpus if stated_gpus is None else stated_gpus
    machine = [f"cluster.gpus={total - apart}"] if isinstance(total, int) and total > apart else []
    rest = [text for text in changes if text not in own and _field(text) != "cluster.gpus"]
    loaded = load_described_job(str(path), [*machine, *rest], str(on))
    notes = tuple(note for note in loaded.assumed if not note.startswith((UPDATE_ALONE, LONGEST_SAMPLES)))
    update = tomllib.loads(dump_job(loaded.job))
    for field in ("document", "dp"):
        update["plan"].pop(field, None)
    group = found.shard_group
    if group and 1 < group < loaded.job.dp * loaded.job.plan.cp and update["plan"].get("sharding") == "fsdp":
        update["plan"] |= {"sharding": "hsdp", "shard_group": group}
    update["cluster"]["gpus"] = total if isinstance(total, int) else loaded.job.cluster.gpus + apart
    whole = load_rl_job({**update, "workload": "rl", **stated})
    return replace(whole, notes=(*notes, *found.assumed))


def _field(text: str) -> str:
    """The field that an override sets."""
    return text.partition("=")[0].strip()


def _with_lengths(whole: RLJob, log: str | Path | None) -> RLJob:
    """The job with the lengths of a trainer's log, and what it measured beside them."""
    if log is None:
        return whole
    text, where = read_text(Path(log), LARGEST_LOG, "a console log of a trainer"), str(log)
    said = read_rl_steps(Path(log), text)
    if "timing_s/step" not in said and "response_length/mean" not in said:
        raise FileError(
            "--log",
            where,
            "lines of verl's console, such as `step:1 - response_length/mean:324.9 - timing_s/step:96.5`, or steps of "
            "TRL, slime, vime, OpenRLHF, NeMo-RL, AReaL, ROLL, SkyRL or DeepSpeed-Chat",
        )
    changes = {name: _distribution(said, name, whole) for name in ("prompt", "response") if f"{name}_length/mean" in said}
    measured = tuple((PHASES[name], value) for name, value in said.items() if name in PHASES)
    stated = ", ".join(f"{name}s {value}" for name, value in changes.items())
    notes = tuple(note for note in whole.notes if not note.startswith(LENGTHS_ASSUMED))
    rl = whole.rl.model_copy(update=changes)
    return replace(
        whole, rl=rl, measured=measured, notes=(*notes, f"lengths by the log, log-normal: {stated}") if stated else notes
    )


def _distribution(said: Mapping[str, float], name: str, whole: RLJob) -> str:
    """MEAN~CV<CAP by mean, maximum and clipped share of a log, as the maximum of so many log-normal lengths lies."""
    mean, most = said[f"{name}_length/mean"], said.get(f"{name}_length/max", 0.0)
    clipped = said.get(f"{name}_length/clip_ratio", 0.0)
    if not mean >= 1.0:
        raise FileError("--log", f"{name}_length/mean: {mean:g}", "a mean length of a token or more")
    if not most > mean:
        return f"{mean:g}~1"
    count = whole.rl.prompts * (whole.rl.samples if name == "response" else 1)
    beyond = NormalDist().inv_cdf(1.0 - min(max(clipped, 0.5 / count), 0.5))
    # ln(most / mean) = beyond * sigma - sigma^2 / 2: the smaller root
    inside = max(beyond**2 - 2.0 * math.log(most / mean), 0.0)
    sigma = min(beyond - math.sqrt(inside), 2.0)
    return f"{mean:g}~{math.sqrt(math.expm1(sigma**2)):.3g}<{most:.0f}"
