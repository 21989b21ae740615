"""Adapter for torch.distributed.pipelining: forward and backward of each micro batch on each stage, named "stage N"."""

from __future__ import annotations

from typing import Any

from windtunnel.fleet.watch.context import WatchContext


def watch_pipelining(context: WatchContext) -> None:
    """Wraps the stages of every schedule."""
    steps, recorder = context.steps, context.recorder

    def forward(original: Any) -> Any:
        def forward_one_chunk(stage: Any, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
            if not recorder.live:
                return original(stage, fwd_chunk_id, *args, **options)
            mark = steps.open_forward(recorder.name(f"stage {stage.stage_index}"), fwd_chunk_id)
            done = original(stage, fwd_chunk_id, *args, **options)
            steps.close_forward(mark)
            return done

        return forward_one_chunk

    def backward(original: Any) -> Any:
        def one_chunk(stage: Any, bwd_chunk_id: int, *args: Any, **options: Any) -> Any:
            if not recorder.live:
                return original(stage, bwd_chunk_id, *args, **options)
            name = recorder.name(f"stage {stage.stage_index}")
            return steps.timed_backward(name, bwd_chunk_id, original, stage, bwd_chunk_id, *args, **options)

        return one_chunk

    def on_import(module: Any) -> None:
        base = module._PipelineStageBase
        context.patches.wrap(base, "forward_one_chunk", forward)
        context.patches.wrap(base, "backward_one_chunk", backward)
        context.patches.wrap(base, "backward_weight_one_chunk", backward)

    context.imports.when("torch.distributed.pipelining.stage", on_import)
