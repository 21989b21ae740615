"""Real processes over gloo on loopback: operations as predicted, groups that add up, ranks that are missing. Wall time is not
looked at.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import pytest
from forked_ranks import RankForge

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from windtunnel.fleet.startup.layout import Operations, StartCounts, ordered_counts, parse_mesh, torch_counts  # noqa: E402
from windtunnel.fleet.startup.measure import StartCase, measure, servers  # noqa: E402

NEEDS_REDIS = pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not installed")
CASES = [
    StartCase("dp=2,pp=2,tp=2", "torch", count=True),
    StartCase("dp=4,pp=1,tp=2", "torch", count=True),
    StartCase("dp=2,pp=2,tp=2", count=True),
    StartCase("dp=2,pp=2,tp=2", world="bare", count=True),
    StartCase("dp=4,pp=1,tp=2", world="bare", count=True),
    StartCase("dp=8", count=True),
    pytest.param(StartCase("dp=2,pp=2,tp=2", store="redis", count=True), marks=NEEDS_REDIS, id="ordered-redis-full-dp=2,pp=2,tp=2"),
    StartCase("dp=2,pp=2,tp=2", store="hierarchical", ranks_per_node=4, count=True),
    StartCase("dp=3,tp=2", store="hierarchical", ranks_per_node=4, world="bare", count=True),
]


@pytest.fixture(scope="module")
def forge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RankForge]:
    made = RankForge(Path(__file__).with_name("startup_ranks.py"), tmp_path_factory.mktemp("said"))
    yield made
    made.close()


def counted(case: StartCase, forge: RankForge) -> StartCounts:
    """As `measure`, in a process that need not import torch."""
    ((found,),) = forge.ran("start", 1, asdict(case))
    return StartCounts(Operations.of(found["shared"]), Operations.of(found["local"]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.path}-{case.store}-{case.world}-{case.mesh}")
def test_operations_are_exactly_those_predicted(case: StartCase, forge: RankForge) -> None:
    """What runs also adds up the ranks of every group through it."""
    layout = parse_mesh(case.mesh)
    expected = torch_counts(layout) if case.path == "torch" else ordered_counts(layout, case.store, case.world, case.ranks_per_node)
    found = measure(case).counts if case is CASES[0] else counted(case, forge)
    assert found.shared.calls == expected.shared.calls
    assert found.local.calls == expected.local.calls
    assert (found.shared.keys, found.local.keys) == (expected.shared.keys, expected.local.keys)
    assert found.shared.bytes > 0


def run_ranks(forge: RankForge, body: str, world: int) -> list[str]:
    """What each rank that ran `body` said, once all have ended well."""
    server = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60), wait_for_workers=False)
    job = forge.started("run", world, [body, server.port], {})
    assert forge.ended(job) == [0] * world
    return [file.read_text(encoding="utf-8") for file in job.files]


def test_groups_serve_torch_as_its_own_do(forge: RankForge) -> None:
    body = """
mesh = init_mesh(("pp", "dp", "tp"), (2, 2, 2), store=store, rank=rank, order="dp-tp-pp", also=[("dp", "tp")])
assert mesh.ranks("dp") == (rank - rank % 2, rank - rank % 2 + 1)
assert mesh.ranks("dp_tp") == tuple(range(rank // 4 * 4, rank // 4 * 4 + 4))
device_mesh = mesh.device_mesh()
assert device_mesh.get_group("tp") is mesh.group("tp") and device_mesh.get_local_rank("dp") == mesh.coordinates["dp"]
assert device_mesh.mesh.shape == (2, 2, 2) and device_mesh["tp"].mesh.tolist() == list(mesh.ranks("tp"))
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
whole = torch.arange(8.0)
assert torch.equal(distribute_tensor(whole, device_mesh["tp"], [Shard(0)]).full_tensor(), whole)
assert dist.get_backend(mesh.group("pp")) == "gloo" and dist.get_group_rank(mesh.group("pp"), rank) == mesh.coordinates["pp"]
found = [None] * 4
dist.all_gather_object(found, rank, group=mesh.group("dp_tp"))
assert tuple(found) == mesh.ranks("dp_tp")
dist.barrier()
again = init_mesh(("a", "b"), (4, 2), store=store, rank=rank)  # another mesh over the same default group
other = torch.tensor([1.0])
dist.all_reduce(other, group=again.group("a"))
assert other.item() == 4
later = dist.new_group([0, 3], use_local_synchronization=True)
if rank in (0, 3):
    dist.all_reduce(other, group=later)
dist.barrier()
dist.destroy_process_group()
assert not dist.is_initialized()
"""
    run_ranks(forge, body, 8)


def test_other_backends_make_their_own_groups_axis_by_axis(forge: RankForge) -> None:
    """A backend with its device named goes the way that NCCL goes: new_group by members only."""
    body = """
mesh = init_mesh(("dp", "tp"), (2, 2), store=store, rank=rank, backend="cpu:gloo")
for axis in ("dp", "tp"):
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=mesh.group(axis))
    assert total.item() == sum(mesh.ranks(axis))
dist.barrier()
dist.destroy_process_group()
"""
    run_ranks(forge, body, 4)


def test_missing_ranks_are_named(forge: RankForge) -> None:
    body = """
from windtunnel.fleet.startup.groups import StartupTimeout
if rank != 2:
    try:
        init_mesh(("dp", "tp"), (2, 2), store=store, rank=rank, timeout=timedelta(seconds=3))
    except StartupTimeout as error:
        assert error.missing == (2,), error
        print(error)
    else:
        raise AssertionError("no error")
"""
    assert "1 ranks did not start: 2" in run_ranks(forge, body, 4)[0]


@NEEDS_REDIS
def test_redis_is_a_store_as_torch_expects_one() -> None:
    from windtunnel.fleet.startup.store import RedisStore

    with servers(StartCase("dp=2", store="redis"), 1) as (port, _):
        store = RedisStore("127.0.0.1", port, "a[1]*", timedelta(seconds=20))
        other = RedisStore("127.0.0.1", port, "a[1]*2", timedelta(seconds=20))
        prefixed = dist.PrefixStore("in", store)  # calls come through C++
        prefixed.set("k", "v")
        other.set("in/k", "elsewhere")
        assert store.get("in/k") == prefixed.get("k") == b"v"
        assert store.add("n", 5) == 5 and store.add("n", -2) == 3 and store.get("n") == b"3"
        assert (
            store.compare_set("c", "", "1") == b"1"
            and store.compare_set("c", "2", "3") == b"1"
            and store.compare_set("c", "1", "3") == b"3"
        )
        assert store.compare_set("none", "x", "y") == b"x" and not store.check(["none"])
        store.append("l", "ab")
        store.append("l", b"cd")
        store.multi_set(["m", "o"], [b"\0\xff", "2"])
        assert store.multi_get(["l", "m", "o"]) == [b"abcd", b"\0\xff", b"2"]
        assert store.num_keys() == 6 and other.num_keys() == 1
        assert store.delete_key("l") and not store.delete_key("l") and not store.check(["m", "l"])
        with pytest.raises(dist.DistStoreError, match="1 keys missing"):
            store.wait(["m", "never"], timedelta(milliseconds=50))
        child = subprocess.Popen([sys.executable, "-c", f"import redis; r = redis.Redis(port={port}); r.set('a[1]*/late', 'x');"
                                                        " r.publish('a[1]*/late', '')"])  # fmt: skip
        assert store.get("late") == b"x"
        assert child.wait(30) == 0
