"""What saves and loads need of the place where steps are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.fleet.checkpoint.commit import Save
from windtunnel.fleet.checkpoint.folder import FoundStep
from windtunnel.fleet.checkpoint.manifest import ShardFile


class StepStorage(ABC):
    """A place of steps. `where`: its path or URL. Failures are OSError, or FileError where a person asked."""

    where: str
    mending = "make room or mend the store"
    """What a person does when saves are lost."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is anything."""

    @abstractmethod
    def steps(self) -> list[FoundStep]:
        """The steps, newest first; no shard is read. FileError if the place does not exist."""

    def find_committed(self) -> list[FoundStep]:
        """Committed steps, newest first; empty if the place does not exist."""
        return [one for one in self.steps() if one.state == "committed"] if self.exists() else []

    @abstractmethod
    def problem(self) -> str:
        """Why a place without a step of ours is none to begin at step 0; empty if nothing speaks against it."""

    @abstractmethod
    def torn_steps(self) -> list[int]:
        """Steps that were begun and never committed."""

    @abstractmethod
    def claim(self, attempt: str, loaded: int | None, umask: int) -> None:
        """Makes `attempt` the only one that may commit, and sets steps after the loaded one aside. SpecError if there are steps and
        none was loaded."""

    def refuse_strange(self, found: list[FoundStep], loaded: int | None) -> None:
        """SpecError if steps were found and nothing was loaded: they belong to another job, or would be lost."""
        if found and loaded is None:
            allowed = "an empty folder, or one whose newest step was loaded"
            raise SpecError("folder", found[0].path.name, allowed, "Call load before the first save.")

    @abstractmethod
    def owner(self) -> str:
        """The attempt that may commit; empty if nothing has been saved yet."""

    @abstractmethod
    def latest(self) -> int:
        """The step that LATEST names; -1 for none."""

    @abstractmethod
    def save_of(self, step: int, attempt: str, world: int, version: str, topology: dict[str, Any]) -> Save:
        """A save into this place."""

    @abstractmethod
    def begin(self, save: Save) -> None:
        """Makes a place for a save's files."""

    @abstractmethod
    def write(self, save: Save, name: str, data: memoryview) -> str:
        """Writes a new file of a save durably; returns its hash."""

    @abstractmethod
    def unwrite(self, save: Save, name: str) -> None:
        """Removes a file of a save; nothing if it is not there."""

    @abstractmethod
    def acknowledge(self, save: Save, rank: int, shards: list[ShardFile], error: str = "") -> None:
        """Reports that the files of `rank` are written, or why they are not."""

    @abstractmethod
    def collect(self, save: Save, within: float) -> list[ShardFile]:
        """The shards of all ranks, after each has acknowledged. SaveError if one fails or says nothing for `within` seconds."""

    @abstractmethod
    def commit(self, save: Save, shards: list[ShardFile]) -> bool:
        """Makes a written step the newest one. False if an earlier attempt has committed it. SaveError if another attempt owns the
        place by now."""

    @abstractmethod
    def is_committed(self, save: Save) -> bool:
        """Whether the step was committed."""

    @abstractmethod
    def abandon(self, save: Save) -> None:
        """Removes what a save that failed has written, as far as that can be done."""

    @abstractmethod
    def mark_gone(self, attempt: str, rank: int) -> None:
        """Records that `rank` was killed and has acknowledged everything that it staged."""

    @abstractmethod
    def collect_garbage(self, keep: int, interval: int | None, attempt: str, saving: Iterable[int] = ()) -> None:
        """Deletes the steps that `retention.deletable_steps` names."""

    @abstractmethod
    def remove_leftovers(self, attempt: str, rank: int, failed: int, others: bool) -> None:
        """Removes what saves left that can no longer be committed (`retention.remove_leftovers`)."""

    @abstractmethod
    def delete(self, one: FoundStep) -> None:
        """Deletes a step."""

    @abstractmethod
    def hash_errors(self, one: FoundStep) -> list[str]:
        """Missing or damaged files of a step with a manifest; reads all of them."""
