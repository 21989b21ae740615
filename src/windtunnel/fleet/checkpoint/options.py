"""Options of a `Checkpointer`."""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass

UMASKS = {"user": 0o077, "group": 0o027, "all": 0o022}


@dataclass(frozen=True)
class CheckpointOptions:
    """Options of a `Checkpointer`."""

    keep: int = 3
    """Number of newest steps to keep."""
    interval: int | None = None
    """Steps that are multiples of it are kept as well."""
    busy: str = "wait"
    """What `save` does while both buffers are still being written: "wait" or "skip"."""
    neighbour: bool = False
    """Whether to keep a copy in the memory of the next node."""
    within: float = 600.0
    """Seconds in which all ranks must write a step."""
    linger: float = 600.0
    """Seconds for which staged memory is kept after the trainer was killed."""
    settle: float = 60.0
    """Seconds that a load waits for saves that an earlier attempt has staged."""
    readable: str = "user"
    """Who may read the files: "user", "group" or "all". Folders and files that are there already keep their mode."""
    node: str = ""
    """Name of this machine; empty: its host name."""

    @property
    def umask(self) -> int:
        """The bits of a mode that new files and folders do not get."""
        return UMASKS[self.readable]
