"""`ibnetdiscover`, its usual output and that of `-p` (a line a port): switches and hosts of an InfiniBand fabric.

`Switch 65 "S-…" # "name" …`, then `[port] "H-… or S-…"[port] # "name" lid 647 4xNDR`; `Ca 1 "H-…" # "host device"` likewise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.machines.hardware.fabric import FabricLinks, fabric_facts, fabric_of
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_NODE = re.compile(r'^(Switch|Ca|Rt)\s+(\d{1,5})\s+"([^"]+)"\s+#\s+"([^"]*)"')
_PORT = re.compile(r'^\[(\d{1,5})\](?:\([0-9a-fA-F]+\))?\s+"([^"]+)"\[(\d{1,5})\].*?#(.*)$')
_SPEED = re.compile(r"\b(\d{1,2}x\s?(?:SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR|GDR))\b")
_LINE = re.compile(
    r"^(CA|SW|RT)\s+\d+\s+(\d{1,5})\s+(0x[0-9a-fA-F]+)\s+(\d+x\s+\S+)(?:\s+-\s+(CA|SW|RT)\s+\d+\s+(\d{1,5})\s+(0x[0-9a-fA-F]+)\s+\(\s*'([^']*)'\s+-\s+'([^']*)'\s*\))?"
)


def recognises(head: Head) -> bool:
    """Nodes with their GUIDs in quotes, or lines of ports."""
    text = head.text
    return (
        "\nswitchguid=" in text
        or "\ncaguid=" in text
        or sum(_LINE.match(line) is not None for line in head.lines[:50]) >= max(1, min(2, len(head.lines)))
    )


def read(files: Sequence[Path], context: Context) -> Reading:
    """A fabric. FileError for files without a node."""
    links = FabricLinks()
    broken: list[str] = []
    for path in files:
        lines = LogLines(path, context.progress)
        _take(lines, links)
        broken.extend(lines.broken)
    if not links.names:
        raise FileError(str(files[0]), "no node of a fabric", "what `ibnetdiscover` prints")
    facts = fabric_facts(links)
    if links.unlinked_nodes:
        broken.append(f"{links.unlinked_nodes} nodes without a port: the file breaks off, or their cables are out")
    if links.joined and not facts["cas"]:
        joined = f"{facts['switches']} switches of radix {facts['radix']}, {facts['switch_switch_links']} links between them"
        hint = "no host adapter: levels and nodes under a leaf stay open; `ibnetdiscover` without options lists adapters too"
        return Reading("ibnetdiscover", Content.SETTINGS, facts, facts, (joined,), (), (), (hint, *broken))
    if not links.joined:
        return Reading("ibnetdiscover", Content.SETTINGS, facts, facts, ("nodes without links",), (), (), tuple(broken))
    cluster, built, assumed = fabric_of(links, facts, context, files[0].name)
    return Reading("ibnetdiscover", Content.CLUSTER, cluster, facts, tuple(built), (), tuple(assumed), tuple(broken))


def _take(lines: LogLines, links: FabricLinks) -> None:
    here = ""
    for text in lines:
        if match := _NODE.match(text):
            here = match[3]
            links.node(here, match[1] == "Switch", match[4], int(match[2]))
        elif here and (match := _PORT.match(text)):
            speed = _SPEED.findall(match[4])
            links.port(here, int(match[1]), match[2], int(match[3]), speed[-1].replace(" ", "") if speed else "")
        elif match := _LINE.match(text):
            if match[5] is None:
                links.idle_ports += 1
                links.node(match[3], match[1] == "SW", "", 0)
                continue
            links.node(match[3], match[1] == "SW", match[8], 0)
            links.node(match[7], match[5] == "SW", match[9], 0)
            links.port(match[3], int(match[2]), match[7], int(match[6]), "".join(match[4].split()))
