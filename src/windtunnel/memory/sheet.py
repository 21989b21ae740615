"""What answers show of memory: stacked bars of stages, places of offload, and what is allocated over a step."""

from __future__ import annotations

from collections.abc import Sequence

from windtunnel.memory.result import StageMemory
from windtunnel.memory.tiers import NAMES
from windtunnel.memory.tiers import PARTS as TIER_PARTS
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Axis, Block, Curve, Curves, Layer, Lines, Stack, Stacks
from windtunnel.sheet.sentence import Sentence, join

GIB = 2.0**30
LAYERS = (
    Layer("weights", "#3b82f6", letter="w"),
    Layer("gradients", "#8b5cf6", "grads", "g"),
    Layer("optimizer", "#14b8a6", "optim.", "o"),
    Layer("activations", "#f97316", "activ.", "a"),
    Layer("logits", "#ec4899", letter="l"),
    Layer("buffers", "#eab308", letter="b"),
    Layer("workspace", "#84cc16", "worksp.", "s"),
    Layer("context", "#64748b", letter="c"),
    Layer("fragmentation", "#94a3b8", "fragm.", "f"),
)
MEMORY_PARTS = tuple(layer.name for layer in LAYERS)
MEMORY_COLOUR = {layer.name: layer.colour for layer in LAYERS}
MOST_CURVES, POINTS = 4, 600
"""Stages whose allocation is drawn over a step, and about how many points of each."""


def stages_blocks(stages: Sequence[StageMemory]) -> tuple[Block, ...]:
    """The fullest GPU of each stage, places of offload, and allocation over the step where it is known."""
    return (stage_stacks(stages), *tier_lines(stages), *_curves(stages))


def stage_stacks(stages: Sequence[StageMemory]) -> Stacks:
    """A bar a stage against what its GPU has."""
    stacks = tuple(
        Stack(
            str(stage.stage), tuple(float(getattr(stage, part)) for part in MEMORY_PARTS), stage.capacity,
            lacks="" if stage.fits else Sentence("{size} short", size=say.size(stage.missing)),
        )
        for stage in stages
    )  # fmt: skip
    return Stacks("Memory by stage", "stage", LAYERS, stacks, "B", (GIB, "GiB"), "capacity")


def tier_lines(stages: Sequence[StageMemory]) -> tuple[Lines, ...]:
    """A line for each offload place, for the stage with most bytes there."""
    lines = []
    for place in dict.fromkeys(tier.place for stage in stages for tier in stage.tiers):
        tier, stage = max(((t, s.stage) for s in stages for t in s.tiers if t.place == place), key=lambda pair: pair[0].total)
        sizes = [(name, size) for name in TIER_PARTS if (size := getattr(tier, name)) > 0.0]
        parts = join([Sentence("{part} {size}", part=Sentence(name), size=say.size(size)) for name, size in sizes])
        if len(stages) > 1:
            parts = join((parts, Sentence("stage {number}", number=stage)), "; ")
        line = Sentence(
            "{place}, for each GPU: {size} of {whole} ({parts})",
            place=Sentence(NAMES[place]), size=say.size(tier.total), whole=say.size(tier.capacity), parts=parts,
        )  # fmt: skip
        if tier.missing > 0.0:
            line = join((line, Sentence("{size} short", size=say.size(tier.missing))), " ")
        lines.append(Lines((line,), mood="bad" if tier.missing > 0.0 else ""))
    return tuple(lines)


def _curves(stages: Sequence[StageMemory]) -> tuple[Block, ...]:
    """Allocated memory over the step: of the first, the last and the fullest stages."""
    drawn = [stage for stage in stages if len(stage.curve) > 1]
    if len(drawn) > MOST_CURVES:
        drawn = [drawn[0], *sorted(drawn[1:-1], key=lambda stage: -stage.total)[: MOST_CURVES - 2], drawn[-1]]
    if not drawn:
        return ()
    end = max(moment for stage in drawn for moment, _ in stage.curve) or 1.0
    most = 1.05 * max(max(size for stage in drawn for _, size in stage.curve), max(stage.capacity for stage in drawn))
    colours = [MEMORY_COLOUR[part] for part in ("weights", "activations", "optimizer", "gradients")]
    curves = tuple(
        Curve(Sentence("stage {number}", number=stage.stage), colour, _steps(stage.curve))
        for colour, stage in zip(colours, drawn, strict=False)
    )
    label = "Allocated over the step"
    return (Curves(label, curves, Axis(end, "s"), Axis(most, "B"), title=label, detail=True),)


def _steps(curve: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Corners of a step function of about `POINTS` points, the peak of every bucket kept."""
    bucket = -(-len(curve) // POINTS)
    thin = [max(curve[begin : begin + bucket], key=lambda point: point[1]) for begin in range(0, len(curve), bucket)]
    corners = [(moment, before) for (moment, _), (_, before) in zip(thin[1:], thin, strict=False)]
    return (thin[0], *(point for pair in zip(corners, thin[1:], strict=True) for point in pair))
