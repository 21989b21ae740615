"""Adapter for Megatron-Core: forward and backward of each micro batch, optimizers, and axis names of its process groups.

Checked against megatron-core 0.16.1.
"""

from __future__ import annotations

from typing import Any

from windtunnel.fleet.watch.context import WatchContext

AXES = {
    "TENSOR_MODEL_PARALLEL_GROUP": "tp", "PIPELINE_MODEL_PARALLEL_GROUP": "pp", "CONTEXT_PARALLEL_GROUP": "cp",
    "DATA_PARALLEL_GROUP": "dp", "DATA_PARALLEL_GROUP_WITH_CP": "dp_cp", "MODEL_PARALLEL_GROUP": "tp_pp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp_dp", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp_dp_cp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp_cp", "EXPERT_MODEL_PARALLEL_GROUP": "ep", "EXPERT_TENSOR_PARALLEL_GROUP": "etp",
    "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "etp_ep", "EXPERT_DATA_PARALLEL_GROUP": "edp", "EMBEDDING_GROUP": "embedding",
}  # fmt: skip
"""Descriptions that parallel_state gives its groups → axis names."""

_MICRO_BATCH, _VIRTUAL_STAGE = 11, 12
"""Positions of current_microbatch and vp_stage among the arguments of forward_step."""


def watch_megatron(context: WatchContext) -> None:
    """Wraps the functions that every schedule of Megatron-Core calls."""
    steps, recorder = context.steps, context.recorder

    def argument(args: tuple[Any, ...], options: dict[str, Any], name: str, place: int) -> Any:
        return options.get(name, args[place] if len(args) > place else None)

    def forward(original: Any) -> Any:
        def forward_step(*args: Any, **options: Any) -> Any:
            if not recorder.live:
                return original(*args, **options)
            context.report_framework("megatron-core")
            number = argument(args, options, "current_microbatch", _MICRO_BATCH)
            stage = argument(args, options, "vp_stage", _VIRTUAL_STAGE)
            name = recorder.name("forward_step" if stage is None else f"virtual stage {stage}")
            mark = steps.open_forward(name, steps.forwards if number is None else int(number))
            done = original(*args, **options)
            steps.close_forward(mark)
            return done

        return forward_step

    def backward(original: Any) -> Any:
        def backward_step(*args: Any, **options: Any) -> Any:
            if not recorder.live:
                return original(*args, **options)
            return steps.timed_backward(recorder.name("backward_step"), steps.backwards, original, *args, **options)

        return backward_step

    def schedules(module: Any) -> None:
        context.patches.wrap(module, "forward_step", forward)
        context.patches.wrap(module, "backward_step", backward)

    def optimizers(module: Any) -> None:
        for name in ("MixedPrecisionOptimizer", "FP32Optimizer", "ChainedOptimizer"):
            owner = getattr(module, name, None)
            if owner is not None and "step" in vars(owner):
                context.patches.wrap(owner, "step", steps.around_optimizer)

    context.groups.names.update(AXES)
    context.imports.when("megatron.core.pipeline_parallel.schedules", schedules)
    context.imports.when("megatron.core.optimizer.optimizer", optimizers)
