"""The folder of a kept run: its incident log, and what its ranks' checkpoints wrote."""

from __future__ import annotations

import json
from pathlib import Path

from windtunnel.records.incidents import FILE, Incident, IncidentSeconds, append_incident


def kept(folder: Path, saves: int = 30) -> Path:
    """Steps of 2 s, a save of 0.5 s every 10 steps that is committed 3 s later, and 3 faults of 12 s that lose 4 steps."""
    now, step, lines = 1000.0, 0, []
    for number in range(saves):
        for _ in range(10):
            now, step = now + 2.0, step + 1
        now += 0.5
        lines.append({"event": "save", "step": step, "unix": now, "blocking_seconds": 0.5})
        lines.append({"event": "commit", "step": step, "unix": now + 3.0})
        if number % 10 == 5:
            began = now + 4 * 2.0
            seconds = IncidentSeconds(1.0, 2.0, 0.0, 8.0, 1.0, None)
            append_incident(
                folder / FILE,
                Incident(
                    number, "j", began, began + 1, "crash", action="retry", seconds=seconds, lost_steps=4, outcome="recovered"
                ),
            )
            now = began + 12.0
    text = "".join(json.dumps(line) + "\n" for line in lines)
    for rank in range(2):
        (folder / f"checkpoints-{rank}.jsonl").write_text(text)
    return folder
