"""`torch.distributed` with groups of any size in one process: each call is recorded, and moves nothing."""

from __future__ import annotations

import io
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

BACKEND = "capture"
WANTED = "wanted-"
"""Beginning of the name of a file that asks for a rank."""


class Exchange:
    """Objects between ranks that run at the same time, as files of a folder."""

    def __init__(self, torch: Any, folder: Path, rank: int, patience: float = 300.0) -> None:
        self._torch, self._folder, self._rank, self._patience = torch, folder, rank, patience
        self._numbers: dict[tuple[int, int], int] = {}

    def _path(self, source: int, target: int) -> Path:
        number = self._numbers[source, target] = self._numbers.get((source, target), -1) + 1
        return self._folder / f"{source}-{target}-{number}"

    def send(self, target: int, objects: list[Any]) -> None:
        """Leaves objects for a rank."""
        path = self._path(self._rank, target)
        text = io.BytesIO()
        _pickle(self._torch, text).dump(objects)
        path.with_suffix(".part").write_bytes(text.getvalue())
        path.with_suffix(".part").replace(path)
        (self._folder / f"{WANTED}{target}").touch()

    def receive(self, source: int) -> list[Any]:
        """Waits for a rank's objects. TimeoutError after `patience` seconds."""
        path = self._path(source, self._rank)
        (self._folder / f"{WANTED}{source}").touch()
        until = time.monotonic() + self._patience
        while not path.exists():
            if time.monotonic() > until:
                raise TimeoutError(f"rank {source} has sent no object to rank {self._rank} in {self._patience:.0f} s")
            time.sleep(0.02)
        found: list[Any] = _unpickle(self._torch, path.read_bytes())
        return found


def put_in(torch: Any, device: Any, exchange: Exchange) -> list[dict[str, Any]]:
    """Lets every group be one of the recorder's. Returns the list of groups, which grows: number, name and ranks of each."""
    dist = torch.distributed
    inside = dist.distributed_c10d
    groups: list[dict[str, Any]] = []

    def make(options: Any, _: Any = None) -> Any:
        ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
        groups.append({"number": len(groups), "name": str(options.group_id), "ranks": ranks})
        return device.make_group(options.group_rank, options.group_size, len(groups) - 1)

    dist.Backend.register_backend(BACKEND, make, extended_api=True, devices=["cpu", "cuda"])
    begin, split = inside.init_process_group, inside.new_group

    def init_process_group(backend: str | None = None, *_: Any, **given: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        begin(
            f"cpu:{BACKEND},cuda:{BACKEND}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]),
            store=FakeStore(), device_id=given.get("device_id"),
        )  # fmt: skip

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, **given: Any) -> Any:
        group = split(ranks, timeout, f"cpu:{BACKEND},cuda:{BACKEND}", None, **given)
        if given.get("group_desc") and groups:
            groups[-1]["description"] = given["group_desc"]
        return group

    standing_in = {
        "init_process_group": init_process_group, "new_group": new_group, "get_backend": lambda group=None: "nccl",
        "is_nccl_available": lambda: True, "_verify_params_across_processes": lambda *_: None,
        "monitored_barrier": lambda *_, **__: None, **_objects(dist, exchange),
    }  # fmt: skip
    _replace(dist, inside, standing_in)
    for module in (dist, inside):
        module.ProcessGroupNCCL = ProcessGroupNCCL
    if not hasattr(dist, "set_timeout"):  # of later versions of PyTorch, which torchtitan asks for
        dist.set_timeout = lambda *_, **__: None
    return groups


class ProcessGroupNCCL:
    """A name of builds with CUDA, which scripts look at and take options from. No group is of it."""

    class Options:
        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self.config = types.SimpleNamespace()


def _replace(dist: Any, inside: Any, standing_in: dict[str, Any]) -> None:
    """Puts functions in the place of those of `torch.distributed`, also where a module of it has imported them by name."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("torch.") and module is not None]
    for name, value in standing_in.items():
        before = getattr(inside, name, None) or getattr(dist, name)
        for module in modules:
            if module.__dict__.get(name) is before:
                setattr(module, name, value)


def _objects(dist: Any, exchange: Exchange) -> dict[str, Any]:
    """Calls with Python objects. Those of a whole group are taken to be this rank's own; those for one rank travel through files,
    and a rank that nobody has started yet is asked for."""

    def all_gather_object(objects: list[Any], thing: Any, group: Any = None) -> None:
        for index in range(len(objects)):
            objects[index] = thing

    def gather_object(thing: Any, objects: list[Any] | None = None, *_: Any, **__: Any) -> None:
        if objects is not None:
            all_gather_object(objects, thing)

    def broadcast_object_list(*_: Any, **__: Any) -> None:
        pass

    def scatter_object_list(output: list[Any], objects: list[Any] | None = None, *_: Any, **__: Any) -> None:
        output[0] = objects[0] if objects else None

    def rank_of(peer: Any, group: Any, in_group: Any) -> int:
        return int(dist.get_global_rank(group, in_group)) if peer is None else int(peer)

    def send_object_list(
        objects: list[Any], dst: Any = None, group: Any = None, device: Any = None, group_dst: Any = None, **_: Any
    ) -> None:  # fmt: skip
        exchange.send(rank_of(dst, group, group_dst), objects)

    def recv_object_list(
        objects: list[Any], src: Any = None, group: Any = None, device: Any = None, group_src: Any = None, **_: Any
    ) -> int:  # fmt: skip
        peer = rank_of(src, group, group_src)
        objects[:] = exchange.receive(peer)
        return peer

    functions = (
        all_gather_object, gather_object, broadcast_object_list, scatter_object_list, send_object_list, recv_object_list,
    )  # fmt: skip
    return {function.__name__: function for function in functions}


def _pickle(torch: Any, file: io.BytesIO) -> Any:
    """A pickler that writes tensors of the device by their shapes: they have no values."""
    import pickle

    class Pickler(pickle.Pickler):
        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, torch.Tensor) and thing.device.type == "cuda":
                arguments = (tuple(thing.shape), tuple(thing.stride()), str(thing.dtype).removeprefix("torch."), str(thing.device))
                return _make_tensor, arguments
            return NotImplemented

    return Pickler(file)


def _unpickle(torch: Any, data: bytes) -> Any:
    import pickle

    return pickle.loads(data)  # of a process of ours, in a folder of ours


def _make_tensor(shape: tuple[int, ...], stride: tuple[int, ...], dtype: str, device: str) -> Any:
    import torch

    return torch.empty_strided(shape, stride, dtype=getattr(torch, dtype), device=device)
