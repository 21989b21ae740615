"""`ibswinfo.sh` of an unmanaged InfiniBand switch: model, ports, power supplies with their watts, temperature and fans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.errors import FileError
from windtunnel.formats.head import Head
from windtunnel.formats.reading import Content, Context, Reading
from windtunnel.formats.text.lines import LogLines

_LINE = re.compile(r"\s*(\S[^|]{0,40}?)\s*\|\s*(.*?)\s*")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?")
_GOOD = ("ok", "")


def recognises(head: Head) -> bool:
    """Lines of a switch's part number, firmware and power supplies, between bars."""
    keys = {match[1] for line in head.lines[:200] if (match := _LINE.fullmatch(line))}
    return "part number" in keys and ("PSID" in keys or "firmware version" in keys)


def read(files: Sequence[Path], context: Context) -> Reading:
    """What each switch says of itself; watts of all. FileError for files without a switch."""
    switches: dict[str, dict[str, Any]] = {}
    wrong: list[str] = []
    broken: list[str] = []
    for path in files:
        own = _switch(LogLines(path, context.progress, broken), path.name, wrong)
        if not own:
            broken.append(f"{path}: no switch")
            continue
        switches[str(own.get("GUID") or path.name)] = own
    if not switches:
        raise FileError(str(files[0]), "no switch", "what ibswinfo.sh prints")
    watts = sum(own["watts"] for own in switches.values())
    facts = {"switches": len(switches), "watts": watts, "not_ok": wrong, "by_switch": switches}
    built = (f"{len(switches)} switches drawing {watts:g} W", *(f"not OK: {one}" for one in wrong[:5]))
    return Reading("ibswinfo", Content.SETTINGS, facts, facts, built, (), (), tuple(broken))


def _switch(lines: LogLines, name: str, wrong: list[str]) -> dict[str, Any]:
    """Keys of the switch; those of a power supply after its number."""
    own: dict[str, Any] = {}
    part = ""
    watts = 0.0
    for text in lines:
        match = _LINE.fullmatch(text)
        if match is None:
            part = "" if text.startswith("--") else part
            continue
        key, value = match[1], match[2]
        if supply := re.fullmatch(r"(PSU\d+) status", key):
            part = supply[1]
        inside = bool(part) and text[:1].isspace()
        label = f"{part} {key}" if inside else key
        if len(own) < 1000:
            own[label] = float(value) if _NUMBER.fullmatch(value) else value
        if key == "power (W)" and _NUMBER.fullmatch(value):
            watts += float(value)
        if key.endswith(("status", "DC power")) and value.lower() not in _GOOD:
            wrong.append(f"{name}: {label} {value}")
    return own | {"watts": watts} if own else {}
