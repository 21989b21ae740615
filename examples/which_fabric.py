"""Rail-optimised or fat tree, DCQCN or HPCC, with 16 % oversubscription: which fabric for the all-to-all of a mixture of experts?

    .venv/bin/python examples/which_fabric.py

64 H100 in eight nodes, two nodes below a leaf, exchange 16 MiB each, packet by packet: what a layer's tokens are on their way to
its experts. A rail-optimised fabric keeps a message on one rail, since NCCL hands it to the GPU on the receiver's rail first (PXN),
so it climbs to a spine less often than in a fat tree, where hashes collide. HPCC keeps queues short and pays with bandwidth where
many short messages share a link.
"""

from __future__ import annotations

import windtunnel as wt

SIZE = 16 * 2**20
GPUS = 64


def rows() -> list[tuple[str, str, float, dict[str, object]]]:
    """(topology, congestion control, oversubscription, row of the table of nccl-tests)."""
    found = []
    for topology in ("rail", "fat_tree"):
        for control in ("dcqcn", "hpcc"):
            for over in (1.0, 1.16):
                cluster = wt.load_cluster("h100-roce", [
                    f"fabric.topology={topology}", f"fabric.congestion={control}", f"fabric.oversubscription={over}",
                    "fabric.leaf_nodes=2",
                ])  # fmt: skip
                found.append((topology, control, over, wt.sweep(cluster, "all_to_all", GPUS, [SIZE], network="packet")[0]))
    return found


def main() -> None:
    closed = wt.sweep(wt.load_cluster("h100-roce"), "all_to_all", GPUS, [SIZE])[0]
    print(f"all-to-all of {SIZE >> 20} MiB a rank on {GPUS} H100, RoCE 400 Gb/s; alone on its links {closed['time_us']:.0f} us")
    print(f"{'topology':<10} {'control':<8} {'oversubscribed':>14} {'time':>9} {'bus bandwidth':>14} {'pauses':>7} {'marks':>6}")
    for topology, control, over, row in rows():
        print(f"{topology:<10} {control:<8} {over - 1:>14.0%} {row['time_us']:>6.0f} us {row['busbw_GBs']:>9.1f} GB/s "
              f"{row['pfc_pauses']:>7,} {row['ecn_marks']:>6,}")  # fmt: skip


if __name__ == "__main__":
    main()
