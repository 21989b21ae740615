"""Text of others, such as of a rank, as it may be shown on a terminal."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC: titles, clipboard
    r"|\x1b[ -/]*[0-~]?"
)


SECRET_WORDS = "token|password|passwd|passphrase|secret|api[-_]?key|access[-_]?key|private[-_]?key|credentials?|cookie|webhook"
"""Words at the end of a name by which its value is a secret: of options, of fields and of variables."""
_SECRETS = re.compile(
    r"(?P<block>-----BEGIN [A-Z ]*PRIVATE KEY-----)[\s\S]*?(?:-----END [A-Z ]*-----|\Z)|"
    r"(?P<keep>(?P<quote>[\"']?)\b(?:proxy-)?authorization(?P=quote)\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?)[^\s\"',}]+"
    r"|(?P<scheme>\bbearer\s+)[\w.~+/-]{8,}=*"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{1,15}://[^\s/:@]*:)[^\s/@]+(?=@)"
    rf"|(?P<flag>(?<![\w-])--?[\w-]{{0,80}}(?:{SECRET_WORDS})(?:\s*=\s*|\s+)[\"']?)[^\s\"',;]+"
    rf"|(?P<name>(?P<mark>[\"']?)\b\w{{0,80}}(?:{SECRET_WORDS})(?P=mark)\s*[:=]\s*"
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


_SECRET_NAME = re.compile(
    rf"{SECRET_WORDS}|PASS(_|$)|PASSWORD|CREDENTIAL|(^|_)KEYS?(_|$)|APIKEY|PRIVATE|AUTH(_|$)", re.IGNORECASE
)  # fmt: skip
"""Names of variables: broader, because what is kept by its hash only is not lost from a text that somebody reads."""


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a variable is a secret, by its name or by its form."""
    return bool(_SECRET_NAME.search(name)) or redact(value) != value or "-----BEGIN " in value


def _name_alone(match: re.Match[str]) -> str:
    return next((part for part in match.group("block", "keep", "scheme", "url", "flag", "name") if part), "") + REDACTED


def clean(text: str) -> str:
    """`text` without escape sequences; other control characters, newlines included, become `?`, and tabs a space. What is left
    cannot drive a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c == "\t" else "?" for c in _ESCAPES.sub("", text))
