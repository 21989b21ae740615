"""Training logs: Megatron-LM and its relatives, torchtitan, NeMo, DeepSpeed, Composer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.formats.head import Head
from windtunnel.formats.reading import Context, Reading


def recognises(head: Head) -> bool:
    """Lines of steps, or of the arguments that a framework prints before them."""
    from windtunnel.formats.logs.frameworks import FRAMEWORKS
    from windtunnel.formats.text.lines import strip

    text = strip(head.data.decode("utf-8", "replace"))
    return text.lstrip()[:1] not in ("<",) and any(framework.KNOWN_BY.search(text) for framework in FRAMEWORKS)


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run with the steps of the logs of one job: restarts follow each other, ranks are merged. FileError without steps."""
    from windtunnel.formats.logs.reader import read_logs

    return read_logs(files, context)
