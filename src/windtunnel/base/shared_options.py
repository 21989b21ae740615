"""Options that several verbs have, each said once: `seed: int = shared.seed()` in the class of a verb."""

from __future__ import annotations

from functools import partial

from windtunnel.base.fidelity import FIDELITIES
from windtunnel.base.options import argument, option

_SOURCE = "A job or a model of the catalogue, a job file, a config.json, or Megatron-LM flags."
_ON = "A cluster: the machine of a model or a job. A job: its machine, plan and runtime. A profile's .parquet: its device."
_FAULT = "flow, packet: n0.nic0--leaf*:down=10ms,up=11ms, leaf0.3--spine*:slow=0.5; packet: leaf0.3:loss=1e-5; repeatable."
_TIMELINE = "Write the timeline: Perfetto, or Chrome's JSON for a .json name."

job = partial(argument, "The job.", metavar="JOB", offers="jobs", request="job")
"""A command line describes it by a name or a file, changes, a machine, a model or flags."""
source = partial(argument, _SOURCE, None, metavar="JOB", offers="jobs")
model = partial(option, "Take the model from a Hugging Face config.json.", None, metavar="CONFIG.JSON")
megatron = partial(option, "Take model, plan and runtime from Megatron-LM flags.", None, metavar="FLAGS")
sets = partial(
    option, "Change a field, such as plan.tp=4 of a job; repeatable.", (), word="--set", metavar="KEY=VALUE", offers="fields"
)
on = partial(option, _ON, None, word="--on", metavar="JOB|CLUSTER|PROFILE", offers="machines")
"""A job's machine, where the job is not the command line's own."""
network = partial(option, "Network fidelity: closed, flow or packet.", "closed", offers="fidelities", choices=tuple(FIDELITIES))
seed = partial(option, "Seed of the hashes that choose among equal-cost paths.", 1, least=0)
threads = partial(option, "packet: threads; the result is the same for any number.", 1, least=1, most=1024)
skip = partial(option, "packet: reuse the result of transfer patterns that repeat.", False)
fault = partial(option, _FAULT, (), metavar="PATTERN:EFFECT")
progress = partial(option, "Called with the share that is done.", None, shown=False)
profile = partial(option, "Measurements of the job's GPU; they take precedence over fitted curves.", None, metavar="PARQUET")
kernels = partial(option, "Curves of `fit kernels` instead of the catalogue's.", None, metavar="FILE.json")
gpu = partial(option, "GPU of kernel tables: a catalogue name, or a GPU's TOML file.", None, metavar="ID|FILE")
dtype = partial(option, "Number format of kernel tables that do not state it, such as bf16.", None)
form = partial(option, "The format, if the content does not show it.", None, word="--as", metavar="FORMAT")
timeline = partial(option, _TIMELINE, None, word="--trace", metavar="FILE", writes=True)
objective = partial(option, "What to optimise; several give a Pareto front.", "time", metavar="NAME,...", joined=True)
out = partial(option, default="-", word="--out", short="-o", metavar="FILE|-", writes=True)
"""The file that a verb writes; its help says what is in it."""
json = partial(option, "Write JSON; - prints only that.", None, metavar="FILE|-", writes=True)
quiet = partial(option, "Print no report.", False, short="-q")
