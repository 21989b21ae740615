"""XML as NCCL and RCCL dump it: elements with attributes in their order. Read, and written as `src/graph/xml.cc` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.base.files import MIB, read_plain

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element as Parsed

LARGEST = 64 * MIB
DEEPEST = 64
"""Elements inside each other; NCCL itself stops at 16 levels of PCI."""


@dataclass(frozen=True)
class XmlNode:
    """An element; NCCL's have no text, hwloc's lists of numbers do."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: tuple[XmlNode, ...] = ()
    text: str = ""

    def walk(self) -> Iterator[XmlNode]:
        """This element and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()

    def get(self, name: str) -> str:
        """An attribute; empty text where it is missing."""
        return self.attributes.get(name, "")

    def number(self, name: str) -> float:
        """An attribute as a number; 0 where it is missing or none."""
        try:
            value = float(self.get(name))
        except ValueError:
            return 0.0
        return value if abs(value) < 1e15 else 0.0


def read_xml(path: Path, wanted: str) -> XmlNode:
    """The root of a file. FileError for what is no XML, is cut off, is larger than 64 MiB or declares entities."""
    from xml.etree.ElementTree import ParseError

    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    data = read_plain(path, LARGEST, wanted)
    try:
        root = fromstring(data)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise FileError(str(path), f"XML that cannot be read ({error})", wanted) from None
    return _node(root, str(path), 0)


def _node(parsed: Parsed, where: str, depth: int) -> XmlNode:
    if depth > DEEPEST:
        raise FileError(where, f"elements more than {DEEPEST} levels deep", "XML of NCCL")
    children = tuple(_node(child, where, depth + 1) for child in parsed)
    return XmlNode(str(parsed.tag), dict(parsed.attrib), children, (parsed.text or "").strip())


def xml_text(root: XmlNode) -> str:
    """The text of a tree, two blanks a level."""
    return "\n".join(_lines(root, 0)) + "\n"


def _lines(node: XmlNode, depth: int) -> Iterator[str]:
    from xml.sax.saxutils import quoteattr  # imported here: it imports urllib

    start = "  " * depth + "<" + " ".join([node.tag, *(f"{name}={quoteattr(value)}" for name, value in node.attributes.items())])
    if not node.children:
        yield start + "/>"
        return
    yield start + ">"
    for child in node.children:
        yield from _lines(child, depth + 1)
    yield "  " * depth + f"</{node.tag}>"
