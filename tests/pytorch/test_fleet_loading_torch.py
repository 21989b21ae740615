"""The shared loader beside torch's DataLoader: bit-equal batches, shared tensors, meshes. Real processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset, DistributedSampler  # noqa: E402

from windtunnel.fleet.loading.loader import (  # noqa: E402
    NodePlace,
    SharedLoader,  # noqa: E402
    place_in_mesh,
)
from windtunnel.fleet.loading.workers import pack, unpack  # noqa: E402

names = itertools.count()


class Pair(NamedTuple):
    image: torch.Tensor
    label: int


class Mixed(Dataset[Any]):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> dict[str, Any]:
        image = torch.arange(12, dtype=torch.float32).reshape(3, 4) * index
        return {
            "pair": Pair(image, index),
            "half": image.to(torch.bfloat16),
            "raw": np.arange(3) + index,
            "name": f"s{index}",
            "flag": index % 2 == 0,
        }


@pytest.fixture
def loader() -> Iterator[SharedLoader]:
    with SharedLoader(
        Mixed(), 6, address=f"torch-{os.getpid()}-{next(names)}", shuffle=True, seed=4, drop_last=False, num_workers=2
    ) as made:
        yield made


def same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(ours, torch.Tensor):
        assert ours.dtype == theirs.dtype and torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs)
        for key in ours:
            same(ours[key], theirs[key])
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        assert ours == theirs


def test_batches_are_bit_equal_to_a_dataloaders(loader: SharedLoader) -> None:
    assert loader.order is not None
    for epoch in range(3):
        plain = DataLoader(Mixed(), batch_sampler=list(loader.order.batches(epoch)))
        ours = list(loader)
        assert len(ours) == len(plain) == 9
        for batch, expected in zip(ours, plain, strict=True):
            same(batch, expected)


def test_unshuffled_shares_are_those_of_the_distributed_sampler() -> None:
    for share in range(4):
        sampler = DistributedSampler(range(50), 4, share, shuffle=False, drop_last=False)
        with SharedLoader(
            list(range(50)), 5, NodePlace(0, (share,), 4), address=f"torch-{os.getpid()}-{next(names)}", drop_last=False
        ) as loader:
            assert [index for batch in loader for index in batch.tolist()] == list(sampler)


def test_tensors_lie_in_the_slot_and_may_be_written() -> None:
    blob = bytearray(
        b"".join(pack({"x": torch.arange(4), "e": torch.empty(0, 3), "s": torch.tensor(2.5), "b": torch.tensor([True])}))
    )
    back = unpack(memoryview(blob))
    assert back["e"].shape == (0, 3) and back["s"].item() == 2.5 and back["b"].dtype == torch.bool
    back["x"][1] = 77
    assert np.array([0, 77, 2, 3]).tobytes() in bytes(blob)


def test_transforms_do_not_depend_on_the_number_of_workers() -> None:
    class Noisy(Mixed):
        def __getitem__(self, index: int) -> Any:
            return torch.rand(3) + index

    found = []
    for workers in (0, 3):
        with SharedLoader(Noisy(), 5, address=f"torch-{os.getpid()}-{next(names)}", num_workers=workers, prefetch=4) as loader:
            found.append(torch.stack(list(loader)))
    assert torch.equal(*found)


def test_the_place_in_a_device_mesh() -> None:
    class FakeMesh:
        mesh = torch.arange(16).reshape(2, 2, 2, 2)
        mesh_dim_names = ("dp_replicate", "pp", "dp_shard", "tp")

    place = place_in_mesh(FakeMesh(), 11, 8, ("dp_replicate", "dp_shard"))
    assert place == NodePlace(3, (2, 2, 3, 3, 2, 2, 3, 3), 4)
    assert place.coordinate == 3
