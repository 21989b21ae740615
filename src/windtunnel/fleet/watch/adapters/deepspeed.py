"""Adapter for DeepSpeed: the engine's step is the optimizer step when gradients are complete; pipeline passes are forward and
backward.

Tested by hand with deepspeed 0.19.8, ZeRO 0 to 3 on CPUs. The pipeline was not; the test uses modules with the same interface.
"""

from __future__ import annotations

from typing import Any

from windtunnel.fleet.watch.context import WatchContext


def watch_deepspeed(context: WatchContext) -> None:
    """Wraps DeepSpeedEngine and PipelineEngine."""
    steps, recorder = context.steps, context.recorder

    def engine_step(original: Any) -> Any:
        timed = steps.around_optimizer(original)

        def step(engine: Any, *args: Any, **options: Any) -> Any:
            context.report_framework("deepspeed")
            chosen = timed if recorder.live and engine.is_gradient_accumulation_boundary() else original
            return chosen(engine, *args, **options)

        return step

    def forward(original: Any) -> Any:
        def exec_forward_pass(engine: Any, *args: Any, **options: Any) -> Any:
            if not recorder.live:
                return original(engine, *args, **options)
            context.report_framework("deepspeed")
            mark = steps.open_forward(recorder.name(f"stage {engine.stage_id}"), steps.forwards)
            done = original(engine, *args, **options)
            steps.close_forward(mark)
            return done

        return exec_forward_pass

    def backward(original: Any) -> Any:
        def exec_backward_pass(engine: Any, *args: Any, **options: Any) -> Any:
            if not recorder.live:
                return original(engine, *args, **options)
            name = recorder.name(f"stage {engine.stage_id}")
            return steps.timed_backward(name, steps.backwards, original, engine, *args, **options)

        return exec_backward_pass

    around = {"_exec_forward_pass": forward, "_exec_backward_pass": backward, "_exec_optimizer_step": steps.around_optimizer}

    def instructions(known: dict[Any, Any]) -> dict[Any, Any]:
        fenced = context.patches.fence.wrap
        return {kind: fenced(call, around[call.__name__]) if call.__name__ in around else call for kind, call in known.items()}

    def engine(module: Any) -> None:
        context.patches.wrap(module.DeepSpeedEngine, "step", engine_step)

    def pipeline(module: Any) -> None:
        context.patches.wrap(module.PipelineEngine, "_INSTRUCTION_MAP", instructions)

    context.imports.when("deepspeed.runtime.engine", engine)
    context.imports.when("deepspeed.runtime.pipe.engine", pipeline)
