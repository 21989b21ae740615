"""Entries of one's own: a model from a config.json, a GPU or a cluster from the numbers of a data sheet, as a file that every verb
takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, Nothing, SpecError
from windtunnel.base.units import parse_bandwidth, parse_flops, parse_size, parse_watts
from windtunnel.spec import load_cluster, load_gpu
from windtunnel.spec.loading.files import read_table, toml_lines

if TYPE_CHECKING:
    from windtunnel.jobs.options import CatalogAddOptions

KINDS = ("model", "gpu", "cluster")
PEAKS = ("fp32", "tf32", "bf16", "fp8", "nvfp4")
"""Number formats whose rates an entry states; fp16 has that of bf16, mxfp8 that of fp8."""
PCIE = 63e9
"""Bytes a second each way of 16 lanes of PCIe 5, of GPUs without links of their own."""
OF_MODELS, OF_GPUS = ("name",), ("memory", "bandwidth", *PEAKS, "power", "like")
OF_MACHINES = ("gpus_per_node", "nvlink", "nic", "nics", "gpus", "fabric")


@dataclass(frozen=True)
class CatalogEntry:
    """An entry that was made: its TOML `text`, what was `assumed`, and a number of `gpus` to try it on."""

    kind: str
    name: str
    text: str
    assumed: tuple[str, ...]
    gpus: int = 8

    @property
    def file(self) -> str:
        return f"{re.sub(r'[^A-Za-z0-9._-]', '-', self.name)}.toml"

    def next_command(self, file: str) -> str:
        """What to type with the entry in `file`."""
        if self.kind == "model":
            return f"windtunnel predict {file} --on h100-ib --gpus {self.gpus}"
        return f"windtunnel predict llama3.1-8b --on {file} --gpus {self.gpus}"


def make_entry(asked: CatalogAddOptions, read_input: Callable[[], str]) -> CatalogEntry:
    """The entry of `catalog add`, loaded once to check it; `read_input`: the text behind `-`.

    Raises SpecError for a number that is missing or in the wrong unit, and FileError for a file that cannot be read.
    """
    if asked.kind not in KINDS:
        raise SpecError("KIND", asked.kind, ", ".join(KINDS))
    _refuse_others(asked)
    if asked.kind == "model":
        return _model(asked, read_input)
    cluster, assumed = _cluster_of_gpu(asked) if asked.kind == "gpu" else _cluster(asked)
    checked = load_cluster(cluster)
    cluster = {**cluster, "source": f"stated by hand; assumed: {'; '.join(assumed) or 'nothing'}"}
    return CatalogEntry(asked.kind, checked.id, _text(cluster, assumed), tuple(assumed), min(checked.gpus, 8 * checked.node.gpus))


def _text(table: dict[str, Any], assumed: list[str]) -> str:
    notes = [f"# assumed: {' '.join(line.split())}" for line in assumed]
    return "\n".join([*notes, *toml_lines(table)]).strip() + "\n"


def _refuse_others(asked: CatalogAddOptions) -> None:
    """SpecError for an option that belongs to entries of another kind."""
    allowed = {"model": OF_MODELS, "gpu": (*OF_GPUS, *OF_MACHINES), "cluster": ("gpu", *OF_MACHINES)}[asked.kind]
    for name in (*OF_MODELS, *OF_GPUS, "gpu", *OF_MACHINES):
        if getattr(asked, name) is not None and name not in allowed:
            listed = ", ".join(_word(option) for option in allowed)
            raise SpecError(_word(name), getattr(asked, name), f"options of a {asked.kind}: {listed}")


def _word(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _model(asked: CatalogAddOptions, read_input: Callable[[], str]) -> CatalogEntry:
    from windtunnel.formats.jobs.huggingface.config import from_config
    from windtunnel.workload import parameter_count

    if asked.what == "-":
        text = read_input()
    else:
        try:
            text = Path(asked.what).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            hint = f"`hf download {asked.what} config.json` fetches it." if re.fullmatch(r"[\w.-]+/[\w.-]+", asked.what) else ""
            raise FileError("WHAT", asked.what, "a config.json, or - for standard input", hint) from error
    try:
        config = json.loads(text)
    except ValueError as error:
        raise FileError(asked.what, " ".join(str(error).split())[:160], "a complete config.json") from error
    if not isinstance(config, dict):
        raise FileError(asked.what, type(config).__name__, "an object, as a config.json is")
    named = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    file = Path(asked.what)
    folder = file.resolve().parent.name if asked.what != "-" and file.stem == "config" else file.stem
    name = asked.name or named or (folder if asked.what != "-" else "") or str(config.get("model_type", "model"))
    read = from_config(config, name)
    table = {"model": read.model.model_dump(mode="json", exclude_none=True)}
    assumed = list(read.assumed)
    if read.ignored:
        assumed.append(f"keys that change no second or are not understood: {', '.join(read.ignored)}")
    gpus = next((gpus for size, gpus in ((2e10, 8), (1e11, 64), (4e11, 256)) if parameter_count(read.model) < size), 1024)
    return CatalogEntry("model", name, _text(table, assumed), tuple(assumed), gpus)


def _number(asked: CatalogAddOptions, name: str, parse: Callable[[Any], float], example: str) -> float | None:
    """A stated quantity; SpecError with an example if its unit is missing."""
    value = getattr(asked, name)
    if value is None:
        return None
    try:
        return parse(value)
    except ValueError as error:
        raise SpecError(_word(name), value, str(error), f"Such as {_word(name)} {example}.") from None


def _require_number(asked: CatalogAddOptions, name: str, parse: Callable[[Any], float], example: str) -> None:
    if _number(asked, name, parse, example) is None:
        raise SpecError(_word(name), Nothing(), "a number of the data sheet", f"Such as {_word(name)} {example}.")


def _cluster_of_gpu(asked: CatalogAddOptions) -> tuple[dict[str, Any], list[str]]:
    assumed: list[str] = []
    _require_number(asked, "memory", parse_size, "288GB")
    _require_number(asked, "bandwidth", lambda text: parse_bandwidth(text, "GPU"), "22TB/s")
    stated = {name: _number(asked, name, parse_flops, "4PFLOP/s") for name in PEAKS}
    peak = {name: rate for name, rate in stated.items() if rate is not None}
    if "bf16" not in peak:
        raise SpecError("--bf16", Nothing(), "the dense rate of matrix products in bf16", "Such as --bf16 4PFLOP/s.")
    said = {name: getattr(asked, name) for name in peak}
    said["fp16"] = said["bf16"]
    if "fp8" in said:
        said["mxfp8"] = said["fp8"]
    if "fp32" not in said:
        said["fp32"] = f"{peak['bf16'] / 32e12:g}TFLOP/s"
        assumed.append("fp32 outside of tensor cores: a thirty-second of bf16")
    like = load_gpu(asked.like) if asked.like is not None else None
    gpu: dict[str, Any] = {
        "id": asked.what, "name": asked.what, "vendor": like.vendor if like else "other",
        "architecture": like.architecture if like else "other", "memory": asked.memory,
        "memory_bandwidth": asked.bandwidth, "peak": said,
    }  # fmt: skip
    if like is None:
        assumed.append(
            "an architecture of its own: kernel curves are those that all measured GPUs share (--like GPU gives it another's)"
        )
    else:
        gpu["kernels_from"] = like.kernels_from or like.id
        assumed.append(f"architecture and kernel curves of {like.id}")
    power = _number(asked, "power", parse_watts, "1800W")
    if power is None:
        assumed.append("no power limit: the clock never falls, and energy is not known (--power)")
    else:
        gpu["power_w"] = power
    assumed.append("rates are dense: halve those that a data sheet gives with sparsity")
    return _put_into_nodes(asked, gpu, assumed), assumed


def _cluster(asked: CatalogAddOptions) -> tuple[dict[str, Any], list[str]]:
    if asked.gpu is None:
        raise SpecError("--gpu", Nothing(), "a GPU of the catalogue, or a file of `catalog add gpu`", "Such as --gpu h20.")
    assumed: list[str] = []
    if Path(asked.gpu).suffix:
        table = read_table(Path(asked.gpu))
        node = table.get("node")
        gpu: Any = node.get("gpu") if isinstance(node, dict) else table
    else:
        load_gpu(asked.gpu)
        gpu = asked.gpu
    return _put_into_nodes(asked, gpu, assumed), assumed


def _put_into_nodes(asked: CatalogAddOptions, gpu: Any, assumed: list[str]) -> dict[str, Any]:
    """A cluster's table of nodes with that GPU."""
    count = asked.gpus_per_node or 8
    if asked.gpus_per_node is None:
        assumed.append("8 GPUs a node (--gpus-per-node)")
    link = _number(asked, "nvlink", lambda text: parse_bandwidth(text, "GPU"), "3.6TB/s")
    if link is None:
        link, kind = PCIE, "pcie"
        assumed.append("GPUs of a node meet over PCIe 5 (--nvlink)")
    else:
        kind = "nvswitch"
        if "way" not in str(asked.nvlink):
            link /= 2.0
            assumed.append(f"--nvlink {asked.nvlink} counts both ways, as data sheets do: {link / 1e9:g} GB/s each way")
    nic = _number(asked, "nic", lambda text: parse_bandwidth(text, "NIC"), "400Gb/s")
    gpus = asked.gpus or count
    if asked.gpus is None:
        assumed.append("one node (--gpus; a job states how many it uses)")
    if gpus % count:
        raise SpecError("--gpus", gpus, f"whole nodes of {count} GPUs")
    scale: dict[str, Any] = {
        "kind": kind,
        "size": count,
        "bandwidth": f"{link / 1e9:.12g}GB/s per GPU each way",
        "source": "stated by hand",
    }
    node: dict[str, Any] = {"id": f"{asked.what}-node", "gpu": gpu, "gpus": count, "pcie_gen": 5, "scale_up": scale}
    if nic is not None:
        many = asked.nics or count
        node["nic"] = {"count": many, "bandwidth": asked.nic, "source": "stated by hand"}
        if asked.nics is None:
            assumed.append("a NIC for each GPU (--nics)")
    elif gpus > count:
        raise SpecError("--nic", Nothing(), "the rate of a NIC, for more than one node", "Such as --nic 400Gb/s.")
    fabric = asked.fabric or ("ib" if nic is not None else "none")
    if asked.fabric is None and nic is not None:
        assumed.append("InfiniBand in rails (--fabric: `windtunnel catalog fabrics`)")
    return {"id": asked.what, "name": asked.what, "node": node, "fabric": fabric, "gpus": gpus}
