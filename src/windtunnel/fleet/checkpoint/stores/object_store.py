"""Steps in an object store, which has no rename: a step exists if and only if its manifest does.

LATEST                            the name of the newest committed step
OWNER                             the attempts that may have committed here, the last of which may do so now (`lineage`)
step-00000100.4f1c/               what attempt 4f1c wrote: shards of DCP, .metadata, and, put last, manifest.json
gone-4f1c-3                       rank 3 of attempt 4f1c was killed

Attempts that have claimed a store, oldest first, each with the step from which it began: what the object OWNER contains.

A step counts unless an attempt that claimed the store after its own began from an earlier step. So one object that is put at once
fences earlier attempts and sets their later steps aside.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from windtunnel.base.dataclasses import asdict, dataclass
from windtunnel.base.errors import FileError
from windtunnel.fleet.checkpoint.commit import Save, SaveError, deletable_steps
from windtunnel.fleet.checkpoint.folder import FOREIGN, LATEST, OWNER, FoundStep, StoreError, StorePath, open_store
from windtunnel.fleet.checkpoint.manifest import MANIFEST, METADATA, Hasher, Manifest, ShardFile, manifest_from
from windtunnel.fleet.checkpoint.pickles import metadata_error
from windtunnel.fleet.checkpoint.stores.storage import StepStorage

T = TypeVar("T")
_STEP = re.compile(r"step-(\d{8,})(?:\.([0-9a-f]+))?")
_LONGEST_PAUSE = 2.0
"""Seconds between two questions for acknowledgements, at most: each costs a request for every rank that is missing."""
_PATIENCE = 3
"""Answers of a store in a row that may be errors before a save gives up waiting for acknowledgements."""


class ObjectStore(StepStorage):
    """A store at a URL, through fsspec. SpecError if it cannot be opened."""

    def __init__(self, url: str) -> None:
        self.root = open_store(url)
        self.where = str(self.root)

    def exists(self) -> bool:
        """Whether anything is there. FileError if the store does not say."""
        return self._ask(self.root.names) is not None

    def steps(self) -> list[FoundStep]:
        """The steps, newest first, judged by manifests and sizes. FileError if there is nothing, or the store does not say."""
        return self._ask(self._find_steps)

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except OSError as error:
            raise FileError(self.where, "an error", "a store that answers", str(error)) from error

    def _find_steps(self, only: int | None = None) -> list[FoundStep]:
        """The steps, or those of one number. FileError if there is nothing; OSError."""
        names = self.root.names()
        if names is None:
            raise FileError(self.where, "nothing there", "a URL under which a Checkpointer saves", "Is the bucket right?")
        listed = {*names, self._latest_name()}  # a list may be older than what was put
        lineage = self._lineage()
        steps = {name: named for name in listed if (named := _STEP.fullmatch(name)) and only in (None, int(named[1]))}
        read = self.root.read_each(f"{name}/{MANIFEST}" for name in steps)
        found = [self._classify(name, named, read.get(f"{name}/{MANIFEST}"), lineage) for name, named in steps.items()]
        there = [one for one in found if one is not None]
        return sorted(there, key=lambda one: (one.step, one.state == "committed", _time_of(one)), reverse=True)

    def _classify(self, name: str, named: re.Match[str], raw: bytes | None, lineage: Lineage) -> FoundStep | None:
        step, attempt, path = int(named[1]), named[2], self.root / name
        if raw is None:
            if path.names() is None:
                return None
            return FoundStep(step, path, "torn") if attempt else FoundStep(step, path, "damaged", why=(f"{MANIFEST}: not there",))
        try:
            manifest = manifest_from(raw.decode("utf-8", "replace"), str(path / MANIFEST))
        except FileError as error:
            return FoundStep(step, path, "damaged", why=(str(error),))
        if manifest.step != step or attempt not in (None, manifest.attempt):
            why = f"its manifest is of step {manifest.step} of attempt {manifest.attempt}"
            return FoundStep(step, path, "damaged", manifest, (why,))
        if lineage.is_superseded(step, manifest.attempt):
            return FoundStep(step, path, "superseded", manifest)
        wrong = _size_errors(path, manifest)
        return FoundStep(step, path, "damaged" if wrong else "committed", manifest, wrong)

    def problem(self) -> str:
        """Why this is no place to begin at step 0, as `folder.folder_problem` says it of a folder; empty for none."""
        return str(self._ask(self._problem))

    def _problem(self) -> str:
        if self.root.is_file():
            return "an object, and no place of windtunnel's steps"
        names = self.root.names() or []
        found = self._find_steps() if names else []
        for pattern, what in FOREIGN if not found else ():
            first, _, rest = pattern.partition("/")
            for name in names:
                if fnmatch(name, first) and (not rest or (self.root / name / rest).size() is not None):
                    return f"{what} ({name}), which windtunnel does not read"
        newest = self._latest_name()
        there = {one.path.name for one in found if one.state != "torn"}
        return f"{LATEST} with {newest[:40]}, whose objects are gone" if newest and newest not in there else ""

    def torn_steps(self) -> list[int]:
        """Steps that were begun and never committed."""
        return [one.step for one in self.steps() if one.state == "torn"] if self.exists() else []

    def claim(self, attempt: str, loaded: int | None, umask: int) -> None:
        """Makes `attempt` the one that may commit, and sets steps after the loaded one aside, by putting one object. SpecError if
        there are steps and none was loaded; FileError."""
        self._ask(lambda: self._claim(attempt, loaded))

    def _claim(self, attempt: str, loaded: int | None) -> None:
        names = self.root.names() or []
        found = [one for one in self._find_steps() if one.state in ("committed", "damaged")] if names else []
        self.refuse_strange(found, loaded)
        (self.root / OWNER).write_text(self._lineage().claim(attempt, loaded or 0).text())
        loaded_path = next((one.path for one in found if one.step == loaded and one.state == "committed"), None)
        if loaded_path is not None:
            (self.root / LATEST).write_text(loaded_path.name + "\n")
        else:
            (self.root / LATEST).remove()
        for name in names:
            if name.startswith("gone-") and not name.startswith(f"gone-{attempt}-"):
                (self.root / name).remove()

    def _lineage(self) -> Lineage:
        try:
            return Lineage.of((self.root / OWNER).read_text())
        except FileNotFoundError:
            return Lineage()

    def owner(self) -> str:
        """The attempt that may commit; empty if nothing has been saved yet."""
        return self._lineage().owner

    def _latest_name(self) -> str:
        try:
            return (self.root / LATEST).read_text().strip()
        except FileNotFoundError:
            return ""

    def latest(self) -> int:
        """The step that LATEST names; -1 for none."""
        named = _STEP.fullmatch(self._latest_name())
        return int(named[1]) if named else -1

    def save_of(self, step: int, attempt: str, world: int, version: str, topology: dict[str, Any]) -> Save:
        """A save into this store."""
        return Save(self.root, step, attempt, world, version, topology)

    def _place(self, save: Save) -> StorePath:
        return self.root / f"step-{save.step:08d}.{save.attempt}"

    def begin(self, save: Save) -> None:
        """Nothing: a store has no folders."""

    def write(self, save: Save, name: str, data: memoryview) -> str:
        """Puts a shard; returns its hash. OSError."""
        return (self._place(save) / name).write_data(data)

    def unwrite(self, save: Save, name: str) -> None:
        """Removes a shard. OSError."""
        (self._place(save) / name).remove()

    def acknowledge(self, save: Save, rank: int, shards: list[ShardFile], error: str = "") -> None:
        """Puts an object that says that the shards of `rank` are in the store, or why not. OSError."""
        said = {"attempt": save.attempt, "step": save.step, "error": error, "shards": [asdict(one) for one in shards]}
        (self._place(save) / _ack_name(rank)).write_text(json.dumps(said))

    def collect(self, save: Save, within: float, pause: Callable[[float], None] = time.sleep) -> list[ShardFile]:
        """The shards of all ranks, after each has acknowledged. SaveError if a rank reports an error, or says nothing for `within`
        seconds; StoreError for a store that no longer answers."""
        end, wait, failures = time.monotonic() + within, 0.02, 0
        told: dict[int, list[ShardFile]] = {}
        where = str(self._place(save))
        while len(told) < save.world:
            missing = [rank for rank in range(save.world) if rank not in told]
            try:
                gone = self.root.read_each(_gone_name(save.attempt, rank) for rank in missing)  # before what it acknowledged last
                read = self._place(save).read_each(map(_ack_name, missing))
                failures = 0
            except StoreError:
                failures += 1
                if failures >= _PATIENCE:
                    raise
                gone, read = {}, {}
            for rank in missing:
                said = _parse_ack(read.get(_ack_name(rank), b""))
                if said is None and _gone_name(save.attempt, rank) in gone:
                    raise SaveError(
                        str(self._place(save)), f"rank {rank} was killed before its part was staged", "all ranks to stage"
                    )
                if said is not None and said["error"]:
                    raise SaveError(where, f"rank {rank}: {said['error']}", "all ranks to write their shards")
                if said is not None:
                    told[rank] = [ShardFile(**one) for one in said["shards"]]
            if len(told) == save.world:
                break
            if time.monotonic() > end:
                first = min(set(range(save.world)) - set(told))
                raise SaveError(where, f"no word of rank {first}", f"all ranks within {within:g} s")
            pause(wait)
            wait = min(2 * wait, _LONGEST_PAUSE)
        return [shard for rank in range(save.world) for shard in told[rank]]

    def commit(self, save: Save, shards: list[ShardFile]) -> bool:
        """Puts the manifest, and with it the step exists. False if the step is there already, from an earlier attempt.

        SaveError if another attempt owns the store before or after that; OSError from the store.
        """
        place = self._place(save)
        self._check_owner(save)
        if any(one.state == "committed" for one in self._find_steps(save.step)):
            place.remove_all()
            return False
        manifest = Manifest(save.step, save.attempt, save.world, time.time(), save.version, tuple(shards), save.topology)
        (place / MANIFEST).write_text(manifest.text())
        self._check_owner(save)  # its claim may have come between; it has set this step aside then
        with suppress(OSError):  # the manifest decides; the next save names itself
            (self.root / LATEST).write_text(place.name + "\n")
        with suppress(OSError):
            for rank in range(save.world):
                (place / _ack_name(rank)).remove()
        return True

    def _check_owner(self, save: Save) -> None:
        if (owner := self.owner()) != save.attempt:
            raise SaveError(self.where, f"attempt {owner} saves here", f"attempt {save.attempt}")

    def is_committed(self, save: Save) -> bool:
        """Whether the step's manifest is there. OSError."""
        return (self._place(save) / MANIFEST).size() is not None

    def abandon(self, save: Save) -> None:
        """Removes what a save that failed has put; what the store refuses stays until a later save."""
        with suppress(OSError):
            self._erase(self._place(save))

    def mark_gone(self, attempt: str, rank: int) -> None:
        """Records that `rank` was killed and has acknowledged everything that it staged. OSError."""
        (self.root / _gone_name(attempt, rank)).write_text("")

    def collect_garbage(self, keep: int, interval: int | None, attempt: str, saving: Iterable[int] = ()) -> None:
        """Deletes the `deletable_steps`. OSError."""
        for one in deletable_steps(self._find_steps(), keep, interval, attempt, saving):
            self._erase(self.root / one.path.name)

    def remove_leftovers(self, attempt: str, rank: int, failed: int, others: bool) -> None:
        """Removes, from rank 0, the objects of saves that can no longer be committed: of `attempt` up to step `failed` and, with
        `others`, of all other attempts. What the store refuses is passed over."""
        if rank != 0:
            return
        with suppress(OSError, FileError):
            for one in self._find_steps():
                if one.state == "torn":
                    own = one.path.name.endswith(f".{attempt}")
                    if one.step <= failed if own else others:
                        self._erase(self.root / one.path.name)

    def delete(self, one: FoundStep) -> None:
        """Deletes a step. FileError if the store refuses."""
        self._ask(lambda: self._erase(self.root / one.path.name))

    @staticmethod
    def _erase(place: StorePath) -> None:
        """The manifest first, so that a partly deleted step does not look committed."""
        (place / MANIFEST).remove()
        place.remove_all()

    def hash_errors(self, one: FoundStep) -> list[str]:
        """Missing or damaged objects of a step with a manifest; reads all of them. FileError for a store that does not answer."""
        assert one.manifest is not None
        path, manifest = self.root / one.path.name, one.manifest
        return list(self._ask(lambda: [*_size_errors(path, manifest)] or _content_errors(path, manifest)))


def _time_of(one: FoundStep) -> float:
    return one.manifest.written if one.manifest else 0.0


def _ack_name(rank: int) -> str:
    return f"ack-{rank}.json"


def _gone_name(attempt: str, rank: int) -> str:
    return f"gone-{attempt}-{rank}"


def _parse_ack(raw: bytes) -> dict[str, Any] | None:
    """An acknowledgement; None for one that is not there yet, or not whole."""
    try:
        said: dict[str, Any] = json.loads(raw)
    except ValueError:
        return None
    return said


def _size_errors(path: StorePath, manifest: Manifest) -> tuple[str, ...]:
    """Missing objects of a step and those of the wrong size. One list, and a question for each object that the list denies."""
    listed, wrong = path.sizes(), []
    for shard in manifest.shards:
        size: int | None = listed.get(shard.name)
        if size != shard.bytes:
            size = (path / shard.name).size()
        if size is None:
            wrong.append(f"{shard.name}: not there")
        elif size != shard.bytes:
            wrong.append(f"{shard.name}: {size} bytes, {shard.bytes} were written")
    return tuple(wrong)


def _content_errors(path: StorePath, manifest: Manifest) -> list[str]:
    wrong = []
    for shard in manifest.shards:
        hasher, kept = Hasher(), []
        try:
            for piece in (path / shard.name).pieces(shard.bytes):
                hasher.update(piece)
                kept += [piece] if shard.name == METADATA else []
        except FileNotFoundError:
            wrong.append(f"{shard.name}: not there")
            continue
        if hasher.hexdigest() != shard.hash:
            wrong.append(f"{shard.name}: its bytes are not those that were written")
        elif shard.name == METADATA and (why := metadata_error(b"".join(kept))):
            wrong.append(why)
    return wrong


def fetch_step(url: str, folder: Path) -> None:
    """Copies a committed step from a store into a local folder that is there. Its files are as the store has them: the caller
    compares their hashes. FileError if there is no such step, or no room. The attempt may be left out of the name."""
    parent, _, name = url.rstrip("/").rpartition("/")
    named = _STEP.fullmatch(name)
    hint = f"Type `windtunnel fleet checkpoints ls {url if named is None else parent}`."
    if named is None:
        raise FileError(url, name, "a step, such as step-00002000", hint)
    store = ObjectStore(parent)
    there = [
        one for one in store.steps() if one.manifest and one.step == int(named[1]) and named[2] in (None, one.manifest.attempt)
    ]
    if not there:
        raise FileError(url, "nothing there", "a committed step", hint)
    one, place = there[0], store.root / there[0].path.name
    assert one.manifest is not None
    try:
        (folder / MANIFEST).write_bytes((place / MANIFEST).read_bytes())
        for shard in one.manifest.shards:
            with open(folder / shard.name, "wb") as file:
                for piece in (place / shard.name).pieces(shard.bytes):
                    file.write(piece)
    except OSError as error:
        raise FileError(str(place), "an error", "a step that can be copied to a temporary folder", str(error)) from error


_LINE = re.compile(r"([0-9a-f]+)(?: (\d+))?")


@dataclass(frozen=True)
class Lineage:
    """(attempt, step from which it began; None: unknown), oldest first."""

    claims: tuple[tuple[str, int | None], ...] = ()

    @classmethod
    def of(cls, text: str) -> Lineage:
        """Parses OWNER; a line that is none of ours is passed over."""
        lines = [_LINE.fullmatch(line.strip()) for line in text.splitlines()]
        return cls(tuple((one[1], int(one[2]) if one[2] else None) for one in lines if one))

    @property
    def owner(self) -> str:
        """The attempt that may commit; empty if none has claimed the store."""
        return self.claims[-1][0] if self.claims else ""

    def is_superseded(self, step: int, attempt: str) -> bool:
        """Whether a later attempt began before `step`. An attempt that is not listed is earlier than all."""
        at = max((index for index, (name, _) in enumerate(self.claims) if name == attempt), default=-1)
        return any(began is not None and began < step for _, began in self.claims[at + 1 :])

    def claim(self, attempt: str, began: int) -> Lineage:
        """With `attempt` as the owner. Earlier claims that decide nothing any more are left out."""
        kept = []
        for index, (name, start) in enumerate(self.claims):
            later = [one for _, one in self.claims[index + 1 :] if one is not None] + [began]
            if start is None or start < min(later) or name == attempt:
                kept.append((name, start))
        return Lineage((*(one for one in kept if one[0] != attempt), (attempt, began)))

    def text(self) -> str:
        """What OWNER contains."""
        return "".join(f"{name}\n" if began is None else f"{name} {began}\n" for name, began in self.claims)
