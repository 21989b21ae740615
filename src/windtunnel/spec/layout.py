"""How frameworks distribute layers that do not divide evenly over (virtual) pipeline stages.

Frameworks of Megatron's kind can count the input embedding and the output head as a layer each, so that the first and the last
virtual stage hold one transformer layer less (BLOOM's `type:transformer|embedding`, Llama 3's 126 layers on 16 stages).
DeepSpeed's `partition_balanced` otherwise fills every stage up to the largest share and leaves the remainder to the last one; so do
Megatron-Bridge's layouts of DeepSeek-V3, whose last stage also predicts further tokens.
"""

from __future__ import annotations

from windtunnel.spec.model import Model


def uneven(layers: int, stages: int, greedy: bool, further: bool = False) -> tuple[tuple[int, ...], str] | None:
    """(layers per virtual stage in model order, the rule in words), or None if every layout leaves a stage empty.

    `greedy` uses DeepSpeed's rule if the first rule does not apply; else stages differ by one, the large ones first.
    `further`: the last stage also has MTP layers, so it gets the remainder.
    """
    if (layers + 2) % stages == 0 and stages > 1 and not further:
        share = (layers + 2) // stages
        plan = [share] * stages
        plan[0] -= 1
        plan[-1] -= 1
        return _check_layout(plan, "embedding and head count as one layer each: first and last stage hold one layer less")
    if greedy or further:
        share = -(-layers // stages)
        plan, remaining = [], layers
        for _ in range(stages):
            plan.append(min(share, remaining))
            remaining -= plan[-1]
        whose = "DeepSpeed's balanced partition" if greedy else "where further tokens are predicted, too"
        layout = _check_layout(plan, f"stages filled up to the largest share, the rest on the last ({whose})")
        if layout:
            return layout
    share, more = divmod(layers, stages)
    return _check_layout([share + (stage < more) for stage in range(stages)], "stages differ by one layer, the large ones first")


def by_work(layers: int, stages: int, head: float) -> tuple[tuple[int, ...], str] | None:
    """nanotron's rule (`build_model`, nanotron/models/base.py): a stage ends with the layer at which the work so far reaches its
    share. `head`: work of the output head, in layers; it sits on the last stage, alone where the layers end before.
    """
    share, plan, done = (layers + head) / stages, [0] * stages, 0
    for stage in range(stages - 1):
        while done < layers and done < share * (stage + 1):
            done, plan[stage] = done + 1, plan[stage] + 1
    plan[-1] = layers - done
    if min(plan[:-1], default=1) == 0:
        few, more = divmod(layers, stages - 1)
        plan = [few + (stage < more) for stage in range(stages - 1)] + [0]
    return _check_layout(plan, f"stages of equal work, the head as much as {head:.1f} layers")


def head_in_layers(model: Model) -> float:
    """Work of the output head over that of a layer, by their weights, as nanotron counts it: V h over 4 h d_heads + 3 h f."""
    return model.vocab / (4.0 * model.q_heads_dim + 3.0 * model.ffn)


def _check_layout(plan: list[int], rule: str) -> tuple[tuple[int, ...], str] | None:
    return (tuple(plan), rule) if min(plan[1:-1], default=1) >= 1 and min(plan) >= 0 else None
