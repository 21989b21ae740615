"""How each framework records traces of two or three steps, which say where the time goes."""

from __future__ import annotations

_FLAGS = {
    "megatron-core": "--profile --use-pytorch-profiler --profile-step-start 12 --profile-step-end 14 --profile-ranks 0 8 "
    "--tensorboard-dir traces",
    "nemo": "profiling.use_pytorch_profiler=true profiling.profile_step_start=12 profiling.profile_step_end=14 "
    "profiling.profile_ranks=[0,8]",
    "torchtitan": "--profiling.enable_profiling --profiling.profile_freq 12 --profiling.save_traces_folder traces",
    "nanotron": "profiler: {profiler_export_path: traces}",
}
"""Names of megatron/training/arguments.py (Core 0.9 and later), Megatron-Bridge's ProfilingConfig, torchtitan's Profiling and
nanotron's ProfilerArgs."""

_ANY = (
    "with torch.profiler.profile(schedule=torch.profiler.schedule(wait=10, warmup=2, active=2, repeat=1), record_shapes=True, "
    "on_trace_ready=torch.profiler.tensorboard_trace_handler('traces')) as profiler: around the loop, and profiler.step() after "
    "each step"
)


def recording_hint(framework: str) -> str:
    """What to add to a run of `framework` so that it records traces, as its user types it."""
    return _FLAGS.get(framework, _ANY)
