"""What the catalogue shows: names of each kind, a kind's entries in one line each, an entry as a file, and what can be imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Lines, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, join, quote
from windtunnel.spec import load_cluster, load_fabric, load_gpu, load_job, load_law, load_model, load_node, load_region
from windtunnel.spec.loading.files import entry, toml_lines
from windtunnel.spec.loading.load import load_reliability


def _sheet(title: str, sections: Sequence[tuple[str, Block]], titled: bool = False) -> Sheet:
    return Sheet(title, "", (), tuple(Section(name, (block,)) for name, block in sections), titled=titled)


def kinds_sheet(names: Mapping[str, Sequence[str]]) -> Sheet:
    """The names of every kind."""
    titled = [(Sentence("{kind} ({count})", kind=quote(kind), count=len(listed)), Lines((quote(", ".join(listed)),)))
              for kind, listed in names.items()]  # fmt: skip
    return _sheet("The catalogue", titled, titled=True)


def entries_sheet(kind: str, names: Sequence[str]) -> Sheet:
    """The entries of a kind, each in one line; of what is read off no numbers, the source."""
    short = SHORT.get(kind)
    lines = {name: short(name) if short else quote(str(entry(kind, name, kind).get("source", ""))) for name in names}
    return _listing_sheet(kind, "in short", lines)


def formats_sheet(readers: Mapping[str, str]) -> Sheet:
    """What `windtunnel import` reads, by the reader's name."""
    return _listing_sheet("formats", "what is read", readers)


def _listing_sheet(kind: str, about: str, lines: Mapping[str, str]) -> Sheet:
    """`kind`: the word that the command takes."""
    rows = tuple((Cell(name), Cell(line)) for name, line in lines.items())
    table = Table(kind, (Column(quote(kind)), Column(about, wraps=True)), rows, filtered=True)
    return _sheet(quote(kind), [(quote(kind), table)])


def entry_sheet(name: str, table: Mapping[str, Any]) -> Sheet:
    """One entry with its sources."""
    return _sheet(quote(name), [(quote(name), Lines(tuple(map(quote, toml_lines(dict(table)))), mood="code"))])


def _gpu(name: str) -> Sentence:
    gpu = load_gpu(name)
    fast = "bf16" if "bf16" in gpu.peak else next(iter(gpu.peak))
    rates = f"{gpu.memory_bandwidth / 1e12:.3g} TB/s, {fast} {gpu.peak[fast] / 1e12:.4g} TFLOP/s"
    return quote(f"{gpu.name}: {say.size(gpu.memory)}, {rates}")


def _node(name: str) -> Sentence:
    node = load_node(name)
    nic = Sentence("no NIC")
    if node.nic:
        nic = Sentence("{count} NICs of {rate} Gb/s", count=node.nic.count, rate=f"{node.nic.bandwidth * 8e-9:.4g}")
    scale_up = f"{node.scale_up.bandwidth / 1e9:.4g}"
    return Sentence("{gpus} x {gpu}, {kind} {rate} GB/s per GPU each way, {nic}", gpus=node.gpus, gpu=node.gpu.id,
                    kind=node.scale_up.kind, rate=scale_up, nic=nic)  # fmt: skip


def _fabric(name: str) -> Sentence:
    fabric = load_fabric(name)
    if fabric.topology == "graph":
        return quote(f"{fabric.kind}, {fabric.builder}")
    return Sentence("{kind}, {topology}, {nodes} nodes below a leaf, oversubscription {ratio}", kind=fabric.kind,
                    topology=fabric.topology, nodes=fabric.leaf_nodes, ratio=f"{fabric.oversubscription:g}")  # fmt: skip


def _cluster(name: str) -> Sentence:
    cluster = load_cluster(name)
    machine = Sentence("{gpus} x {gpu} in {node}, {fabric}", gpus=f"{cluster.gpus:,}", gpu=cluster.gpu.id, node=cluster.node.id,
                       fabric=cluster.fabric.id)  # fmt: skip
    price = Sentence("${price} per GPU hour", price=f"{cluster.price_per_gpu_hour or 0.0:g}")
    return join((machine, price)) if cluster.price_per_gpu_hour else machine


def _region(name: str) -> Sentence:
    region = load_region(name)
    carbon = Sentence(
        "{region}: {grams} g CO2 a kWh in {year}", region=region.name, grams=f"{region.g_co2_per_kwh:g}", year=region.year
    )
    if region.dollars_per_kwh is None:
        return carbon
    return join((carbon, Sentence("${price} a kWh", price=f"{region.dollars_per_kwh:g}")))


def _law(name: str) -> Sentence:
    law = load_law(name)
    return quote(f"{law.name}: {law.E:g} + {law.A:g} / N^{law.alpha:g} + {law.B:g} / D^{law.beta:g}")


def _model(name: str) -> Sentence:
    model = load_model(name)
    parts = [Sentence("{layers} layers, hidden {hidden}, {heads} heads in {groups} groups, ffn {ffn}", layers=model.layers,
                      hidden=model.hidden, heads=model.heads, groups=model.groups, ffn=model.ffn)]  # fmt: skip
    if model.experts:
        parts.append(Sentence("{experts} experts of {width}, {top_k} a token", experts=model.experts, width=model.expert_width,
                              top_k=model.top_k))  # fmt: skip
    return join((*parts, Sentence("vocabulary {count}", count=f"{model.vocab:,}")))


def _job(name: str) -> Sentence:
    job = load_job(name)
    plan = job.plan
    degrees = f"tp {plan.tp}, cp {plan.cp}, pp {plan.pp}, vpp {plan.vpp}"
    return Sentence("{model} on {gpus} x {gpu}: {degrees}, batch {batch} x {seq}, {framework} {precision}", model=job.model.name,
                    gpus=f"{job.cluster.gpus:,}", gpu=job.cluster.gpu.id, degrees=degrees, batch=plan.global_batch, seq=plan.seq,
                    framework=job.runtime.framework, precision=job.runtime.precision)  # fmt: skip


def _reliability(name: str) -> Sentence:
    facts = load_reliability(name)
    kinds = [kind for _, kind in facts.kinds()]
    nodes, jobs = (sum(getattr(kind, field) for kind in kinds) for field in ("per_node_day", "per_job_day"))
    parts = [Sentence("{count} failures in 1,000 node-days", count=f"{1000.0 * nodes:.3g}")]
    if jobs:
        parts.append(Sentence("{count} in a day of a job", count=f"{jobs:.3g}"))
    spares = Sentence("{share} % spares", share=f"{100.0 * facts.spare_share:.3g}")
    return join((*parts, say.count_words(len(kinds), "kind"), spares))


SHORT: dict[str, Callable[[str], Sentence]] = {
    "gpus": _gpu,
    "nodes": _node,
    "fabrics": _fabric,
    "clusters": _cluster,
    "regions": _region,
    "laws": _law,
    "models": _model,
    "jobs": _job,
    "reliability": _reliability,
}
"""One line on an entry, by kind."""
