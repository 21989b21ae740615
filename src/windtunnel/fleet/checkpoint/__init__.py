"""Two-stage checkpoints of PyTorch state: a copy into host memory holds training up, the rest goes on beside it.

    from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

    with Checkpointer("checkpoints", keep=3) as checkpointer:
        state = {"model": model, "optimizer": optimizer, "loader": loader, "rng": RankState(RandomState())}
        first = checkpointer.load(state) or 0
        ...
        checkpointer.save(step, state)

`manifest`, `folder`, `retention` and the process that writes (`flush`) need no torch.
"""
