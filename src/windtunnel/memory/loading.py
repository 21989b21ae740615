"""Memory while a model is loaded, before the first step, where `runtime.loading` says how: more than a step's where each rank holds
what a step shards.

transformers quantises on the GPU of every rank, whatever shards the step (quantizers/quantizer_bnb_4bit.py, update_device_map: the
current device), as ZeRO 3's partitioned construction leaves out quantised models (modeling_utils.py). PEFT's
prepare_model_for_kbit_training then casts what is not packed to fp32 (peft/utils/other.py). FSDP without
cpu_ram_efficient_loading: every rank reads the whole checkpoint into host memory (accelerate utils/dataclasses.py: off unless the
variable of that name is set; transformers training_args.py: "false").
"""

from __future__ import annotations

from windtunnel.base.dataclasses import dataclass
from windtunnel.memory.habits import context_bytes, habits, nccl_bytes
from windtunnel.memory.result import USABLE
from windtunnel.memory.state import state_of
from windtunnel.memory.tiers import USABLE_HOST
from windtunnel.spec.common import DTYPE_BYTES
from windtunnel.spec.graph_model import GraphModel
from windtunnel.spec.job import Job
from windtunnel.spec.offload import NO_OFFLOAD
from windtunnel.workload import build, parameter_count

GIB = 2.0**30
_ONE_READS = {"axolotl": "fsdp_config: cpu_ram_efficient_loading: true"}
_RANK_0 = "fsdp_cpu_ram_efficient_loading: true in Accelerate's fsdp_config (cpu_ram_efficient_loading in the Trainer's)"
_QLORA_SHARDED = "FSDP with cpu_ram_efficient_loading and bnb_4bit_quant_storage: bfloat16 in place of this sharding"


@dataclass(frozen=True)
class LoadingMemory:
    """Bytes while a model is loaded: on the `gpu` of a rank, in the `host` memory of a node, and what each offers; `cast`: the
    part of `gpu` that is fp32 copies; `ranks`: that read the whole checkpoint on a node."""

    gpu: float
    gpu_capacity: float
    cast: float
    host: float
    host_capacity: float | None
    ranks: int
    mends: str

    @property
    def gpu_missing(self) -> float:
        return max(0.0, self.gpu - self.gpu_capacity)

    @property
    def host_missing(self) -> float:
        return max(0.0, self.host - self.host_capacity) if self.host_capacity is not None else 0.0

    @property
    def fits(self) -> bool:
        return not self.gpu_missing and not self.host_missing

    @property
    def says(self) -> tuple[str, ...]:
        """What is held where, and what is short."""
        if self.ranks:
            text = (
                f"While loading, {self.ranks} ranks of a node hold {self.host / GIB:,.0f} GiB of host memory, the whole model each"
            )
            over, place = self.host_missing, "host memory"
        else:
            text = f"While loading, each GPU holds {self.gpu / GIB:.1f} GiB: the whole model, packed" + (
                f", of it {self.cast / GIB:.1f} GiB cast to fp32 (embedding, norms, output layer)" if self.cast else ""
            )
            over, place = self.gpu_missing, "GPU memory"
        if not over:
            return (f"{text}.",)
        return (f"{text}.", f"Does not fit while loading: {over / GIB:,.1f} GiB of {place} short. {self.mends} mends it.")


def loading_of(job: Job) -> LoadingMemory | None:
    """Memory while the model is loaded; None where how it is loaded is not known, or it takes no more than a step."""
    how, node = job.runtime.loading, job.cluster.node
    if how is None or how == "first" or isinstance(job.model, GraphModel):
        return None
    usable = USABLE * job.cluster.gpu.memory
    host = USABLE_HOST * node.host_memory if node.host_memory is not None else None
    ranks = job.cluster.gpus_of_node
    if how == "each":
        held = float(parameter_count(job.model)) * DTYPE_BYTES[job.runtime.load_dtype]
        return LoadingMemory(0.0, usable, 0.0, ranks * held, host, ranks, _ONE_READS.get(job.runtime.tool or "", _RANK_0))
    plan = job.plan.model_copy(update={"sharding": "none", "shard_group": None, "secondary_group": None, "offload": NO_OFFLOAD})
    alone = job.model_copy(update={"plan": plan})
    workload, habit = build(alone), habits(job.runtime.framework)
    narrow, frozen = workload.held_weights(0)
    parameters, experts = workload.stage_parameters[0], workload.stage_experts[0]
    states = workload.stage_states[0]
    weights = state_of(alone, parameters, experts, narrow, states, frozen, workload.resident_bytes(0)).weights
    model = job.model
    wide = float(job.padded_vocab * model.hidden * (1 if model.tied_embeddings else 2) + (2 * model.layers + 1) * model.hidden)
    cast = (4.0 - DTYPE_BYTES["bf16"]) * wide if job.runtime.kbit_casts else 0.0
    return LoadingMemory(
        weights + cast + context_bytes(job, habit) - nccl_bytes(job),
        usable,
        4.0 * wide if cast else 0.0,
        0.0,
        host,
        0,
        _QLORA_SHARDED,
    )
