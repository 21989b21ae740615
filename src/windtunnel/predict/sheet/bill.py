"""What a run draws, costs and emits: power by part, joules a token, dollars by part, CO2."""

from __future__ import annotations

from collections.abc import Mapping

from windtunnel.compute.clock import large_clock
from windtunnel.predict.answer.money import region_of
from windtunnel.predict.padding import filled_share
from windtunnel.predict.prediction import Prediction
from windtunnel.sheet import numbers as say
from windtunnel.sheet.sentence import Sentence, join
from windtunnel.spec import Job

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


def _clock_sentence(job: Job) -> str | None:
    """The clock of the job's large products, where power holds it below the full one; None where that is not known."""
    gpu, precision = job.cluster.gpu, job.runtime.precision
    share = large_clock(gpu, precision)
    if share >= 1.0 or gpu.clock_hz is None or gpu.power_w is None:
        return None
    facts = {
        "format": precision, "clock": f"{share * gpu.clock_hz / 1e9:.2f}", "full": f"{gpu.clock_hz / 1e9:.2f}",
        "limit": f"{gpu.power_cap_w or gpu.power_w:,.0f} W",
    }  # fmt: skip
    if gpu.sustained_rate is not None:
        return Sentence("Large products in {format}: clock {clock} of {full} GHz at {limit}, limited, by the stated rate.", **facts)
    return Sentence(
        "Large products in {format}: clock {clock} of {full} GHz at {limit}, limited, as on published machines; "
        "cluster.node.gpu.sustained_rate says it of yours.",
        **facts,
    )


def bill_lines(prediction: Prediction) -> list[str]:
    """One sentence each on power, energy, money and CO2, for what the job and its cluster state."""
    job = prediction.job
    lines: list[str] = []
    tokens = job.tokens or float(job.plan.global_batch * job.plan.seq) * filled_share(job)
    whole = Sentence("the run") if job.tokens is not None else Sentence("a step")
    if prediction.gpu_power_w is not None and prediction.node_power_w is not None and prediction.power_w is not None:
        limit = job.cluster.gpu.power_cap_w or job.cluster.gpu.power_w
        drawn = f"{prediction.gpu_power_w:,.0f} W"
        gpu = Sentence("A GPU draws {power} in the mean", power=drawn)
        if limit is not None:
            gpu = Sentence("A GPU draws {power} in the mean of its {limit}", power=drawn, limit=f"{limit:,.0f} W")
        lines.append(
            Sentence(
                "{gpu}, a node {node} at its plug, the cluster {cluster} with network, storage and a PUE of {pue}.",
                gpu=gpu, node=say.watts(prediction.node_power_w), cluster=say.watts(prediction.power_w), pue=f"{job.cluster.pue:g}",
            )
        )  # fmt: skip
    if (said := _clock_sentence(job)) is not None:
        lines.append(said)
    if prediction.energy_parts is not None:
        energy = sum(prediction.energy_parts.values())
        lines.append(
            Sentence(
                "Energy of {whole}: {energy}, {each} J a token. {parts}.",
                whole=whole, energy=say.energy(energy), each=f"{energy / tokens:.3g}", parts=_shares(prediction.energy_parts),
            )
        )  # fmt: skip
    if prediction.cost_parts is not None:
        cost = sum(prediction.cost_parts.values())
        lines.append(
            Sentence(
                "Cost of {whole}: {cost}, {each} a million tokens. {parts}.",
                whole=whole, cost=say.dollars(cost), each=say.dollars(1e6 * cost / tokens), parts=_shares(prediction.cost_parts),
            )
        )  # fmt: skip
    carbon = prediction.carbon_kg if job.tokens is not None else prediction.carbon_kg_per_step
    if carbon is not None:
        region = region_of(job.cluster)
        lines.append(
            Sentence(
                "CO2 of {whole}: {mass} at {rate} g a kWh ({region}, {year}).",
                whole=whole, mass=say.mass(carbon), rate=f"{region.g_co2_per_kwh:g}", region=region.name, year=region.year,
            )
        )  # fmt: skip
    return lines


def _shares(parts: Mapping[str, float]) -> Sentence:
    """The parts with their shares, largest first; those below half a percent are left out."""
    whole = sum(parts.values()) or 1.0
    listed = sorted(((value / whole, name) for name, value in parts.items()), reverse=True)
    labels = [(PART_LABELS.get(name, name), share) for share, name in listed if share >= 0.005]
    labels = [(label if number else label[:1].upper() + label[1:], share) for number, (label, share) in enumerate(labels)]
    return join([Sentence("{part} {share}", part=Sentence(label), share=say.percent(share, 0)) for label, share in labels])
