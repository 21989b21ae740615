"""What a run draws, costs and emits, in sentences: power by part, joules a token, dollars by part, CO2."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.predict.answer.money import region_of
from windtunnel.predict.prediction import Prediction
from windtunnel.sheet import numbers as say

PART_LABELS = {
    "gpus": "GPUs",
    "hosts": "rest of the nodes",
    "supplies": "power supplies",
    "network": "network",
    "storage": "storage",
    "cooling": "building (PUE)",
    "rent": "rent",
    "nodes": "nodes",
    "space": "space",
    "people": "people",
    "power": "power",
}


def bill_lines(prediction: Prediction) -> list[str]:
    """One sentence each on power, energy, money and CO2, for what the job and its cluster state."""
    job, lines = prediction.job, []
    tokens = job.tokens or float(job.plan.global_batch * job.plan.seq)
    whole = "the run" if job.tokens is not None else "a step"
    if prediction.gpu_power_w is not None and prediction.node_power_w is not None and prediction.power_w is not None:
        limit = job.cluster.gpu.power_cap_w or job.cluster.gpu.power_w
        lines.append(
            f"A GPU draws {prediction.gpu_power_w:,.0f} W in the mean"
            + (f" of its {limit:,.0f} W" if limit is not None else "")
            + f", a node {say.watts(prediction.node_power_w)} at its plug, "
            f"the cluster {say.watts(prediction.power_w)} with network, storage and a PUE of {job.cluster.pue:g}."
        )
    if prediction.energy_parts is not None:
        energy = sum(prediction.energy_parts.values())
        lines.append(
            f"Energy of {whole}: {say.energy(energy)}, {energy / tokens:.3g} J a token. {_shares(prediction.energy_parts)}."
        )
    if prediction.cost_parts is not None:
        cost = sum(prediction.cost_parts.values())
        per_million = say.dollars(1e6 * cost / tokens)
        lines.append(f"Cost of {whole}: {say.dollars(cost)}, {per_million} a million tokens. {_shares(prediction.cost_parts)}.")
    carbon = prediction.carbon_kg if job.tokens is not None else prediction.carbon_kg_per_step
    if carbon is not None:
        region = region_of(job.cluster)
        lines.append(f"CO2 of {whole}: {say.mass(carbon)} at {region.g_co2_per_kwh:g} g a kWh ({region.name}, {region.year}).")
    return lines


def _shares(parts: Mapping[str, float]) -> str:
    """The parts with their shares, largest first; those below half a percent are left out."""
    whole = sum(parts.values()) or 1.0
    listed = sorted(((value / whole, name) for name, value in parts.items()), reverse=True)
    text = ", ".join(f"{PART_LABELS.get(name, name)} {say.percent(share, 0)}" for share, name in listed if share >= 0.005)
    return text[:1].upper() + text[1:]
