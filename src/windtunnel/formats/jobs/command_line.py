"""Launch scripts and command lines with Megatron-LM's flags: the last reader of the registry, which takes any text."""

from __future__ import annotations

from windtunnel.formats.head import Head
from windtunnel.formats.jobs.import_job import read

__all__ = ["read", "recognises"]


def recognises(head: Head) -> bool:
    """Any text: the errors of `read` say what is known."""
    return bool(head.text.strip())
