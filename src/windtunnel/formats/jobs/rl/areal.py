"""AReaL's configurations: SGLang or vLLM beside FSDP, Megatron-Core or Archon (areal/api/cli_args.py, alloc_mode.py of 4aef98d8).

Since 1.0 each role has a `backend` such as `sglang:d4t2` and a `scheduling_strategy`; before, one `allocation_mode` placed all of
them (`sglang:d4t2+fsdp:d4`), and before 0.4 in an older spelling (`sglang.d80m2p1+d4m2p4`), with `ppo` and `dataset` for
`gconfig` and `train_dataset`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.keys import interpolate
from windtunnel.formats.jobs.rl.trainer import (
    RLTrainer,
    lengths_of,
    mean_tokens,
    unread,
    update_of_full_recompute,
    update_on_fsdp,
    update_on_megatron,
)
from windtunnel.formats.jobs.scripts.said import Said, is_areal, said_of_table, without_none

_BACKENDS = ("sglang", "vllm", "fsdp", "megatron", "archon")
_GENERATE = ("sglang", "vllm")
_ROLES = ("actor", "critic", "ref")
_PART = re.compile(rf"(?:({'|'.join(_BACKENDS)})?(?:\[(\w+)\])?[:.])?\(?([a-z0-9:|]+)\)?")
_DEGREES = re.compile(r"([dtmpce])([1-9]\d*)")
_DIMENSIONS = re.compile(rf"(?:{_DEGREES.pattern})+")
_KNOWN = 'parts such as "sglang:d4t2+fsdp:d4" or "vllm:d2t4+megatron:(attn:d2p2t2|ffn:d1p2e4)"'
_LONGEST_RESPONSE, _LONGEST_PROMPT, _MINI_BATCHES, _KL, _MEMORY = 16384, 1024, 4, 0.1, 0.9
"""Defaults of max_new_tokens, ppo_n_minibatches, kl_ctl and both engines' share of memory; the longest prompt, which AReaL does not
limit, is assumed."""
_MOST_STALE = 16


@dataclass(frozen=True)
class RoleAllocation:
    """GPUs of a role: `degrees` by letter (d, t, p, c, e, and x for tensor parallelism inside experts); `shares`: the role whose
    GPUs it has, "" for its own."""

    backend: str
    name: str
    degrees: Mapping[str, int] = field(default_factory=dict)
    shares: str = ""

    def degree(self, letter: str) -> int:
        return self.degrees.get(letter, 1)

    @property
    def gpus(self) -> int:
        return self.degree("d") * self.degree("t") * self.degree("p") * self.degree("c")


def read_allocation(text: str, path: str = "allocation_mode") -> RoleAllocation:
    """One part of an allocation. SpecError for another text."""
    match = _PART.fullmatch(text.replace(" ", ""))
    if match is None or text.count("(") != text.count(")"):
        raise SpecError(path, text, _KNOWN)
    backend, name, body = match[1] or "", match[2] or "", match[3]
    dense, _, experts = body.removeprefix("attn:").partition("|ffn:")
    if not _DIMENSIONS.fullmatch(dense) or experts and not _DIMENSIONS.fullmatch(experts):
        raise SpecError(path, text, _KNOWN)
    degrees = {"t" if letter == "m" else letter: int(count) for letter, count in _DEGREES.findall(dense)}
    inside = dict(_DEGREES.findall(experts))
    degrees |= {own: int(inside[letter]) for letter, own in (("e", "e"), ("t", "x")) if letter in inside}
    return RoleAllocation(backend, name, degrees)


def placed_roles(said: Said) -> dict[str, RoleAllocation]:
    """The GPUs of "rollout", "actor", "critic" and "ref", of those that a configuration places."""
    roles: dict[str, RoleAllocation] = {}
    for role in ("rollout", *_ROLES):
        if (text := said.text(f"{role}.backend")) is not None:
            target = said.text(f"{role}.scheduling_strategy.target") or ""
            shared = said.text(f"{role}.scheduling_strategy.type") == "colocation"
            placed = read_allocation(text, f"{role}.backend")
            roles[role] = RoleAllocation(placed.backend, role, placed.degrees, target if shared else "")
    text = said.text("allocation_mode")
    if roles or text is None:
        return roles
    for component in text.split("+"):
        if component.strip() in ("eval", "cpu"):
            continue
        first = ""
        for part in re.split(r"\|(?!\s*ffn:)", component):
            placed = read_allocation(part)
            role = "rollout" if placed.backend in _GENERATE else placed.name
            if role not in ("rollout", *_ROLES):
                role = next((free for free in _ROLES if free not in roles), "ref")
            roles[role] = RoleAllocation(placed.backend, role, placed.degrees, first)
            first = first or role
    return roles


def read_table(table: Mapping[str, Any], gpus: int | None = None) -> RLTrainer | None:
    """What a configuration of AReaL states of a step; None for another table and for one that generates nothing."""
    if not is_areal(table):
        return None
    said, assumed = said_of_table(interpolate(table)), list[str]()
    roles = placed_roles(said)
    if "rollout" not in roles or "actor" not in roles:
        return None
    prompts, samples, minis = _batches(said)
    critic = ("critic.path" in said or "critic.backend" in said) and not said.is_on("ppo.disable_value")
    table_rl: dict[str, Any] = {"algorithm": "ppo" if critic else "grpo", "prompts": prompts, "samples": samples}
    table_rl["mini_batch"] = prompts // minis if prompts % minis == 0 else prompts
    strength = said.number("actor.kl_ctl", "ppo.kl_ctl")
    legacy = said.text("allocation_mode") is not None
    table_rl["reference"] = (_KL if strength is None else strength) > 0.0 and ("ref.path" in said or "ref" in roles or legacy)
    if table_rl["reference"] and strength is None:
        assumed.append(f"a reference policy: actor.kl_ctl is not stated, and AReaL's default is {_KL:g}")
    table_rl["old_logprobs"] = said.is_on("actor.recompute_logprob", "ppo.recompute_logprob")
    response, prompt = _lengths(said)
    if not said.count("train_dataset.max_length", "dataset.max_prompt_len"):
        assumed.append(f"prompts of at most {prompt:,} tokens: the dataset states no limit")
    table_rl |= lengths_of({"prompt": prompt, "response": response}, assumed)
    packed = said.count("actor.mb_spec.max_tokens_per_mb", "actor_train.mb_spec.max_tokens_per_mb")
    actor = roles["actor"]
    share = table_rl["mini_batch"] * samples // max(1, actor.degree("d"))
    table_rl["pack_tokens"] = packed or max(1, share) * mean_tokens(table_rl)
    if packed is None:
        assumed.append("each update in one micro batch: AReaL's mb_spec has no max_tokens_per_mb (--set rl.pack_tokens=N)")
    table_rl["rollout"] = _engine(said, roles["rollout"], samples)
    total = _place(said, roles, table_rl, prompts // table_rl["mini_batch"], assumed)
    if actor.backend == "archon":
        assumed.append("Archon trains: priced as PyTorch's FSDP, or Megatron-Core's with pipeline or expert parallelism")
    _update(said, actor, samples * table_rl["mini_batch"], prompt + response)  # asks for the keys of the update
    assumed += unread(said, "areal")
    return RLTrainer("AReaL", table_rl, total, assumed)


def _batches(said: Said) -> tuple[int, int, int]:
    """(prompts of a step, responses of each, updates)."""
    prompts = said.count("train_dataset.batch_size", "dataset.train_bs_n_seqs", "rollout.consumer_batch_size") or 1
    samples = said.count("gconfig.n_samples", "group_size", "ppo.gen.n") or 1
    return prompts, samples, said.count("actor.ppo_n_minibatches", "ppo.ppo_n_minibatches") or _MINI_BATCHES


def _lengths(said: Said) -> tuple[int, int]:
    """(longest response, longest prompt)."""
    response = said.count("gconfig.max_new_tokens", "ppo.gen.max_new_tokens") or _LONGEST_RESPONSE
    return response, said.count("train_dataset.max_length", "dataset.max_prompt_len") or _LONGEST_PROMPT


def _engine(said: Said, placed: RoleAllocation, samples: int) -> dict[str, Any]:
    engine = placed.backend
    heads = (f"{engine}.", f"actor.{engine}.")

    def names(key: str) -> tuple[str, ...]:
        return tuple(head + key for head in heads)

    at_once = said.count("rollout.max_concurrent_rollouts", "max_concurrent_rollouts")
    most = said.count(*names("max_num_seqs"), *names("max_running_requests"))
    running = None if at_once is None else max(1, -(-at_once * samples // placed.degree("d")))
    for other in _GENERATE:  # the section of the engine that does not run
        said.text(f"{other}.mem_fraction_static", f"{other}.gpu_memory_utilization")
    chunk = said.count(*names("chunked_prefill_size"), *names("max_num_batched_tokens"))
    return without_none(
        engine=engine, tp=placed.degree("t"), pp=placed.degree("p") if placed.degree("p") > 1 else None,
        memory=said.number(*names("mem_fraction_static"), *names("gpu_memory_utilization")) or _MEMORY,
        running=min((count for count in (running, most) if count), default=None), step_tokens=chunk,
        graphs=False if said.is_on(*names("disable_cuda_graph"), *names("enforce_eager")) else None,
        kv="fp8" if (said.text(*names("kv_cache_dtype")) or "").startswith("fp8") else None,
    )  # fmt: skip


def _place(said: Said, roles: Mapping[str, RoleAllocation], table: dict[str, Any], updates: int, assumed: list[str]) -> int:
    """Sets the mode and the groups of other roles; the GPUs of all together."""
    actor, rollout = roles["actor"], roles["rollout"]
    offloads = said.is_on("enable_offload", "actor.offload")
    total = actor.gpus
    if rollout.shares == "actor" or actor.shares == "rollout":
        table["offload"] = "all" if offloads else "none"
    else:
        total += rollout.gpus
        table["rollout"]["gpus"] = rollout.gpus
        ahead = said.count("rollout.max_head_offpolicyness", "max_head_offpolicyness") or 0
        table["mode"] = "async" if ahead else "split"
        if ahead:
            table |= {"staleness": float(min(ahead, _MOST_STALE)), "sync_every": updates, "partial": True}
        if ahead > _MOST_STALE:
            assumed.append(f"at most {_MOST_STALE} batches ahead, of {ahead} that max_head_offpolicyness allows")
    groups: dict[str, list[str]] = {}
    wanted = {"critic": table["algorithm"] == "ppo", "ref": table["reference"]}
    for role, needed in wanted.items():
        if needed and role in roles:
            home = role
            while roles[home].shares in roles:
                home = roles[home].shares
            if home not in ("actor", "rollout"):
                groups.setdefault(home, []).append("reference" if role == "ref" else role)
    if groups:
        table["groups"] = [{"roles": held, "gpus": roles[home].gpus, "beside": False} for home, held in groups.items()]
        total += sum(roles[home].gpus for home in groups)
    nodes, each = said.count("cluster.n_nodes", "n_nodes"), said.count("cluster.n_gpus_per_node", "n_gpus_per_node")
    if nodes is not None and nodes * (each or 8) != total:
        assumed.append(f"{total} GPUs, those that the allocation names, of {nodes * (each or 8)} of the cluster")
    return total


def table_of_update(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Trainer's keys of the actor's update, or Megatron-LM's flags where Megatron-Core trains it."""
    said = said_of_table(interpolate(table))
    roles = placed_roles(said)
    prompts, samples, minis = _batches(said)
    if "rollout" not in roles:
        minis, samples = 1, 1
    batch = samples * (prompts // minis if prompts % minis == 0 else prompts)
    response, prompt = _lengths(said)
    seq = prompt if "rollout" not in roles else prompt + response
    return _update(said, roles.get("actor", RoleAllocation("", "actor")), batch, seq)


def _update(said: Said, actor: RoleAllocation, batch: int, seq: int) -> Mapping[str, Any]:
    legacy = said.text("allocation_mode") is not None and not actor.backend
    checkpoints = said.text("actor.gradient_checkpointing")
    recompute = legacy if checkpoints is None else checkpoints.lower() == "true"
    model, gpus = said.text("actor.path"), actor.gpus
    packed = said.count("actor.mb_spec.max_tokens_per_mb", "actor_train.mb_spec.max_tokens_per_mb")
    micro = max(1, (packed or seq) // seq)
    adapters = (
        {"use_peft": True, "lora_r": said.count("actor.lora_rank") or 32, "lora_target_modules": "all-linear"}
        if said.is_on("actor.use_lora")
        else {}
    )
    by_megatron = actor.backend == "megatron" or (not actor.backend and (actor.degree("p") > 1 or actor.degree("t") > 1))
    if by_megatron or actor.degree("p") > 1 or actor.degree("e") > 1:
        degrees = {
            "tensor_model_parallel_size": actor.degree("t"), "pipeline_model_parallel_size": actor.degree("p"),
            "context_parallel_size": actor.degree("c"), "expert_model_parallel_size": actor.degree("e"),
            "expert_tensor_parallel_size": actor.degree("x") if "e" in actor.degrees else None,
            "num_layers_per_virtual_pipeline_stage": None,
        }  # fmt: skip
        kind = said.text("actor.megatron.recompute_granularity")
        flags = update_of_full_recompute(recompute, kind) | {"sequence_parallel": actor.degree("t") > 1}
        if said.is_on("actor.megatron.moe_enable_deepep"):
            flags |= {"moe_enable_deepep": True, "moe_token_dispatcher_type": "flex"}
        if (form := said.text("actor.megatron.fp8_config.mode", "actor.fp8_config.mode")) not in (None, "disabled"):
            flags |= {"fp8_format": form, "fp8_recipe": said.text("actor.megatron.fp8_config.recipe", "actor.fp8_config.recipe")}
        return update_on_megatron(model, gpus, batch, 1, seq, degrees, **flags)
    offload = said.is_on("actor.fsdp.offload_params", "actor.archon.offload_params")
    axes = {"tp": actor.degree("t"), "cp": actor.degree("c")}
    return update_on_fsdp(
        "AReaL", model, gpus, batch, micro, seq, axes, gradient_checkpointing=recompute, offload=offload, **adapters
    )
