"""`windtunnel catalog [KIND] [NAME]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.cli.shared.common import write, write_json
from windtunnel.cli.shared.options import bare_command_of
from windtunnel.draw.listing import listing
from windtunnel.jobs.options import CatalogCommandOptions
from windtunnel.sheet import numbers as say
from windtunnel.spec import load_cluster, load_fabric, load_gpu, load_job, load_law, load_model, load_node, load_region, names
from windtunnel.spec.loading.catalog import KINDS, entry
from windtunnel.spec.loading.load import load_reliability
from windtunnel.spec.loading.toml import toml_lines

EXAMPLES = """\b
Examples:
  windtunnel catalog models
  windtunnel catalog gpus h100-sxm-80gb
  windtunnel catalog formats
"""


@bare_command_of(CatalogCommandOptions)
def command(asked: CatalogCommandOptions) -> None:
    kind, name, json = asked.kind, asked.name, asked.json
    if kind in ("format", "formats"):
        _formats(name, json)
        return
    if kind is None:
        data: Any = {k: list(names(k)) for k in KINDS}
    else:
        kind = kind if kind in KINDS else f"{kind}s"
        if kind not in KINDS:
            raise UnknownName("catalog kind", kind.removesuffix("s"), KINDS)
        data = list(names(kind)) if name is None else entry(kind, _full_name(kind, name), kind)
    if json is not None:
        write_json({"names": data} if isinstance(data, list) else data, json)
        if json == "-":
            return
    out = Console(highlight=False)
    if kind is None:
        for k, listed in data.items():
            out.print(Text(f"{k} ({len(listed)})", style="bold"))
            out.print(Text("  " + ", ".join(listed)))
    elif name is None:
        out.print(_list(kind))
    else:
        write("\n".join(toml_lines(data)), "-", "catalog")


def _full_name(kind: str, name: str) -> str:
    """The name of an entry from its beginning, if only one begins so; SpecError with the close ones if several do."""
    known = names(kind)
    squashed = {other: other.lower().replace("-", "").replace("_", "") for other in known}
    typed = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    if name in known or not typed:
        return name
    begin = [other for other, text in squashed.items() if text == typed] or [
        o for o, text in squashed.items() if text.startswith(typed)
    ]
    begin = begin or [other for other, text in squashed.items() if typed in text]
    if len(begin) > 1:
        raise SpecError(kind, name, "one entry", f"Did you mean {', '.join(map(repr, begin[:8]))}?")
    return begin[0] if begin else name


def _formats(name: str | None, json: str | None) -> None:
    """What `windtunnel import` reads. UnknownName for a name that no reader has."""
    from windtunnel.formats.importers import describe_importers

    listed = describe_importers(name)
    if json is not None:
        write_json({"formats": listed}, json)
    if json != "-":
        table = listing(("formats", "left"), ("what is read", "left"), wraps=("what is read",))
        for reader, text in listed.items():
            table.add_row(Text(reader), Text(text))
        Console(highlight=False).print(table)


def _list(kind: str) -> Table:
    table = listing((kind, "left"), ("in short", "left"), wraps=("in short",))
    for name in names(kind):
        short = SHORT.get(kind)
        table.add_row(Text(name), Text(short(name) if short else str(entry(kind, _full_name(kind, name), kind).get("source", ""))))
    return table


def _gpu(name: str) -> str:
    gpu = load_gpu(name)
    fast = "bf16" if "bf16" in gpu.peak else next(iter(gpu.peak))
    return f"{gpu.name}: {say.size(gpu.memory)}, {gpu.memory_bandwidth / 1e12:.3g} TB/s, {fast} {gpu.peak[fast] / 1e12:.4g} TFLOP/s"


def _node(name: str) -> str:
    node = load_node(name)
    nic = f", {node.nic.count} NICs of {node.nic.bandwidth * 8e-9:.4g} Gb/s" if node.nic else ", no NIC"
    return f"{node.gpus} x {node.gpu.id}, {node.scale_up.kind} {node.scale_up.bandwidth / 1e9:.4g} GB/s per GPU each way{nic}"


def _fabric(name: str) -> str:
    fabric = load_fabric(name)
    if fabric.topology == "graph":
        return f"{fabric.kind}, {fabric.builder}"
    return f"{fabric.kind}, {fabric.topology}, {fabric.leaf_nodes} nodes below a leaf, oversubscription {fabric.oversubscription:g}"


def _cluster(name: str) -> str:
    cluster = load_cluster(name)
    price = f", ${cluster.price_per_gpu_hour:g} per GPU hour" if cluster.price_per_gpu_hour else ""
    return f"{cluster.gpus:,} x {cluster.gpu.id} in {cluster.node.id}, {cluster.fabric.id}{price}"


def _region(name: str) -> str:
    region = load_region(name)
    price = f", ${region.dollars_per_kwh:g} a kWh" if region.dollars_per_kwh is not None else ""
    return f"{region.name}: {region.g_co2_per_kwh:g} g CO2 a kWh in {region.year}{price}"


def _law(name: str) -> str:
    law = load_law(name)
    return f"{law.name}: {law.E:g} + {law.A:g} / N^{law.alpha:g} + {law.B:g} / D^{law.beta:g}"


def _model(name: str) -> str:
    model = load_model(name)
    heads = f"{model.heads} heads in {model.groups} groups"
    mixture = f", {model.experts} experts of {model.expert_width}, {model.top_k} a token" if model.experts else ""
    return f"{model.layers} layers, hidden {model.hidden}, {heads}, ffn {model.ffn}{mixture}, vocabulary {model.vocab:,}"


def _job(name: str) -> str:
    job = load_job(name)
    plan = job.plan
    return (
        f"{job.model.name} on {job.cluster.gpus:,} x {job.cluster.gpu.id}: tp {plan.tp}, cp {plan.cp}, pp {plan.pp}, "
        f"vpp {plan.vpp}, "
        f"batch {plan.global_batch} x {plan.seq}, {job.runtime.framework} {job.runtime.precision}"
    )


def _reliability(name: str) -> str:
    facts = load_reliability(name)
    kinds = [kind for _, kind in facts.kinds()]
    nodes, jobs = (sum(getattr(kind, field) for kind in kinds) for field in ("per_node_day", "per_job_day"))
    shared = f", {jobs:.3g} in a day of a job" if jobs else ""
    listed = f"{len(kinds)} kind{'s' * (len(kinds) > 1)}, {100.0 * facts.spare_share:.3g} % spares"
    return f"{1000.0 * nodes:.3g} failures in 1,000 node-days{shared}, {listed}"


SHORT: dict[str, Callable[[str], str]] = {
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
