"""Adapters for frameworks above plain PyTorch, and what they can use: the parts of the running monitor. An adapter acts when its
framework is imported and costs nothing before.

DeepSpeed: the engine's step is the optimizer step when gradients are complete; pipeline passes are forward and backward. Tested by
hand with deepspeed 0.19.8, ZeRO 0 to 3 on CPUs. The pipeline was not; the test uses modules with the same interface.

Megatron-Core: forward and backward of each micro batch, optimizers, and axis names of its process groups. Checked against
megatron-core 0.16.1.

DeviceMesh (DDP, FSDP2, tensor parallelism): records the dimensions of each mesh as a line of kind "mesh": {"names", "shape",
"ranks"}. The groups of a mesh have its dimension's name as their description; `groups.GroupRegistry` reads it there.

torch.distributed.pipelining: forward and backward of each micro batch on each stage, named "stage N".

torchtitan: records its name. It trains with plain PyTorch (meshes, FSDP2, pipelining, a container that is an optimizer), which is
monitored anyway; its batches come from torchdata, whose iterators are those of DataLoader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.fleet.watch.groups import GroupRegistry
from windtunnel.fleet.watch.import_hooks import AfterImport
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.recorder import Recorder
from windtunnel.fleet.watch.steps import StepWatch


@dataclass(frozen=True)
class WatchContext:
    """The monitor of this process, as its parts."""

    recorder: Recorder
    steps: StepWatch
    groups: GroupRegistry
    patches: Patches
    imports: AfterImport
    reported: set[str] = field(default_factory=set)
    """Frameworks recorded so far."""

    def report_framework(self, framework: str) -> None:
        """Records once that the job uses a framework. Its import alone proves little: other packages import it to check whether it
        exists.
        """
        if framework not in self.reported:
            self.reported.add(framework)
            self.recorder.ring.text("fact", {"framework": framework})


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


def watch_meshes(context: WatchContext) -> None:
    """Records every mesh with named dimensions from now on."""
    ring = context.recorder.ring

    def tell(mesh: Any) -> None:
        names = getattr(mesh, "mesh_dim_names", None)
        if names:
            ranks = mesh.mesh
            ring.text("mesh", {"names": list(names), "shape": list(ranks.shape), "ranks": ranks.flatten().tolist()})

    def wrap_init(original: Any) -> Any:
        def start(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            if context.recorder.live:
                try:
                    tell(self)
                except Exception:  # the ranks of a mesh on a device may not be readable now
                    return

        return start

    def on_import(module: Any) -> None:
        context.patches.wrap(module.DeviceMesh, "__init__", wrap_init)

    context.imports.when("torch.distributed.device_mesh", on_import)


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


def watch_torchtitan(context: WatchContext) -> None:
    """Records the framework."""

    def on_import(module: Any) -> None:
        context.report_framework("torchtitan")

    context.imports.when("torchtitan.trainer", on_import)


ADAPTERS: tuple[Callable[[WatchContext], None], ...] = (
    watch_meshes, watch_pipelining, watch_megatron, watch_torchtitan, watch_deepspeed,
)  # fmt: skip
"""All adapters, in the order in which they are installed."""
