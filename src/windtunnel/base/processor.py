"""The processor of this machine."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name() -> str:
    """Its name, as the kernel says it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("model name", "Hardware", "CPU implementer")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
