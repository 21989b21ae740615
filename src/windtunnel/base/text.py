"""Text of others, such as of a rank, as it may be shown on a terminal."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC: titles, clipboard
    r"|\x1b[ -/]*[0-~]?"
)


_SECRETS = re.compile(
    r"(?P<keep>(?P<quote>[\"']?)\b(?:proxy-)?authorization(?P=quote)\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"',}]+"
    r"|(?P<scheme>\bbearer\s+)[\w.~+/-]{8,}=*"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s/:@]*:)[^\s/@]+(?=@)"
    r"|(?P<flag>--?[\w-]*(?:token|password|passwd|secret|api[-_]?key|access[-_]?key|credentials?)(?:\s*=\s*|\s+)[\"']?)[^\s\"',;]+"
    r"|(?P<name>(?P<mark>[\"']?)\b\w*(?:token|password|passwd|secret|api_?key|access_?key|credentials?)(?P=mark)\s*[:=]\s*"
    r"[\"']?)(?!//)[^\s\"',;&}]{4,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\b(?:hf_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|sk-|wandb_v1_|nvapi-|npm_|pypi-)[\w-]{16,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]+)?",
    re.IGNORECASE,
)
"""Forms of secrets: headers, passwords in addresses, options and variables by name, keys by their prefixes, JSON web tokens."""
REDACTED = "[redacted]"


def redact(text: str) -> str:
    """`text` without what looks like a secret, before it leaves its process: each becomes `[redacted]`, its name stays."""
    return _SECRETS.sub(_name_alone, text)


def _name_alone(match: re.Match[str]) -> str:
    return next((part for part in match.group("keep", "scheme", "url", "flag", "name") if part), "") + REDACTED


def clean(text: str) -> str:
    """`text` without escape sequences; other control characters, newlines included, become `?`, and tabs a space. What is left
    cannot drive a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in _ESCAPES.sub("", text))
