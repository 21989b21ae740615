"""Two-stage checkpoints of PyTorch state: training stops only for a copy into host memory; writing continues in the background.

    from windtunnel.fleet import Checkpointer, PerRank, RandomState

    with Checkpointer("checkpoints", keep=3) as checkpointer:
        state = {"model": model, "optimizer": optimizer, "loader": loader, "rng": PerRank(RandomState())}
        first = checkpointer.load(state) or 0
        ...
        checkpointer.save(step, state)

`manifest`, `folder`, `retention` and the flush process (`flush`) need no torch.
"""
