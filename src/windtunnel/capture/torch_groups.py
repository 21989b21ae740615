"""`torch.distributed` with groups of any size in one process: each call is recorded, and moves nothing."""

from __future__ import annotations

import os
from typing import Any

BACKEND = "capture"


def put_in(torch: Any, device: Any) -> list[dict[str, Any]]:
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
            f"cpu:{BACKEND},cuda:{BACKEND}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]), store=FakeStore(),
            device_id=given.get("device_id"),
        )  # fmt: skip

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, **given: Any) -> Any:
        group = split(ranks, timeout, f"cpu:{BACKEND},cuda:{BACKEND}", None, **given)
        if given.get("group_desc") and groups:
            groups[-1]["description"] = given["group_desc"]
        return group

    for name, value in {
        "init_process_group": init_process_group, "new_group": new_group, "get_backend": lambda group=None: "nccl",
        "is_nccl_available": lambda: True, "_verify_params_across_processes": lambda *_: None,
        "monitored_barrier": lambda *_, **__: None,
    }.items():  # fmt: skip
        setattr(inside, name, value)
        if hasattr(dist, name):
            setattr(dist, name, value)
    _objects(dist, inside)
    return groups


def _objects(dist: Any, inside: Any) -> None:
    """Objects of other ranks: each is taken to be this rank's own."""

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

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list):
        setattr(inside, function.__name__, function)
        setattr(dist, function.__name__, function)
