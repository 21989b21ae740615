"""Megatron-LM's flags that a prediction depends on, and the older spellings of them: flags.toml.

Names from megatron/training/arguments.py of releases 2.x to Core 0.15 and from Megatron-DeepSpeed.
"""

from __future__ import annotations

from windtunnel.base.files import table_beside, words_by_meaning

_TABLE = table_beside(__file__)
KINDS = words_by_meaning(_TABLE["kinds"])
"""Flag: "int", "float", "str", "list" or "switch", which takes no value."""
OLD_NAMES = words_by_meaning(_TABLE["earlier"])
"""Earlier spelling: today's."""
SHORTER = words_by_meaning(_TABLE["cut_short"])
"""Flags cut short, which argparse takes too: AICB's command line has these."""
LAUNCHER = words_by_meaning(_TABLE["launcher"])
"""torchrun's and deepspeed's own flags, before the training script's name."""
FLAG_OF: dict[str, str] = _TABLE["set"]
"""Fields of a job that a user may state with --set, by the flag that they take the place of."""
LORA_TARGETS = words_by_meaning(_TABLE["lora_targets"])
"""Name of a target of adapters: Megatron-Bridge's."""
OF_A_CHECKPOINT, OF_SLIME, NOT_A_DECODER = (tuple(_TABLE["elsewhere"][kind]) for kind in ("checkpoint", "slime", "not_a_decoder"))
"""Flags that name a model's checkpoint, flags of slime, and begins of flags of other networks than a decoder."""
