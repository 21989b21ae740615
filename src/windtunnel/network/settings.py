"""NCCL_* variables that the closed form honours; they come from the caller, never from the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network.nccl.constants import ALGORITHMS, PROTOCOLS

_ALIASES = {"ring": "ring", "tree": "tree", "collnetdirect": "collnet_direct", "collnetchain": "collnet_chain", "nvls": "nvls",
            "nvlstree": "nvls_tree", "pat": "pat", "collnet": "collnet_direct"}
KNOWN = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
         "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_PAT_ENABLE")


@dataclass(frozen=True)
class Settings:
    """Parsed variables; the defaults are NCCL's. SHARP (CollNet) is off until NCCL_COLLNET_ENABLE=1, as in NCCL."""

    algorithms: frozenset[str] = field(default_factory=lambda: frozenset(ALGORITHMS))
    protocols: frozenset[str] = field(default_factory=lambda: frozenset(PROTOCOLS))
    protocols_forced: bool = False
    min_channels: int | None = None
    max_channels: int | None = None
    nvls: bool = True
    collnet: bool = False
    pat: bool = True


DEFAULT = Settings()


def parse_settings(variables: Mapping[str, str | int] | None) -> Settings:
    """Settings from `{"NCCL_ALGO": "Ring,Tree", ...}`; `^` before a list excludes.

    Raises UnknownName or SpecError on what is not honoured.
    """
    if not variables:
        return DEFAULT
    for name in variables:
        if name not in KNOWN:
            raise UnknownName("settings", str(name), KNOWN)
    protocols = {p.lower(): p for p in PROTOCOLS}
    return Settings(
        algorithms=_listed("NCCL_ALGO", variables, _ALIASES, ALGORITHMS),
        protocols=_listed("NCCL_PROTO", variables, protocols, PROTOCOLS),
        protocols_forced="NCCL_PROTO" in variables,
        min_channels=_whole(variables, "NCCL_MIN_NCHANNELS", "NCCL_MIN_CTAS"),
        max_channels=_whole(variables, "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"),
        nvls=_switch(variables, "NCCL_NVLS_ENABLE", True), collnet=_switch(variables, "NCCL_COLLNET_ENABLE", False),
        pat=_switch(variables, "NCCL_PAT_ENABLE", True),
    )


def _listed(name: str, variables: Mapping[str, str | int], aliases: Mapping[str, str],
            everything: tuple[str, ...]) -> frozenset[str]:
    if name not in variables:
        return frozenset(everything)
    text = str(variables[name]).strip()
    inverse, text = text.startswith("^"), text.removeprefix("^")
    chosen = set()
    for word in text.split(","):
        if word.strip().lower().replace("_", "") not in aliases:
            raise UnknownName(f"settings.{name}", word.strip(), sorted(aliases))
        chosen.add(aliases[word.strip().lower().replace("_", "")])
    return frozenset(everything) - chosen if inverse else frozenset(chosen)


def _whole(variables: Mapping[str, str | int], *names: str) -> int | None:
    for name in names:
        if name in variables:
            text = str(variables[name]).strip()
            if not text.isdigit() or not 1 <= int(text) <= 64:
                raise SpecError(f"settings.{name}", variables[name], "a whole number from 1 to 64")
            return int(text)
    return None


def _switch(variables: Mapping[str, str | int], name: str, default: bool) -> bool:
    if name not in variables:
        return default
    text = str(variables[name]).strip()
    if text not in ("0", "1", "2"):
        raise SpecError(f"settings.{name}", variables[name], "0 or 1")
    return text != "0"
