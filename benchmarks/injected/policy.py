"""Weights, parents, memory and recipes."""

import math

import torch

from algorist.policy.model import CausalPolicy
from injected.tools import Fault, as_json, checkpoint, tensors, weights

RECIPE, MEMORY = ("recipe",), ("memory",)
DECLARED = "{total_gib: 268, free_gib: 256, peak_gib: 194, tensor: activations of 16 layers}"
"""A device with 268 GiB of which 256 are free, and a trainer that needs 194 at its peak."""
_MEMORY = "qualify.memory={trainer_allocator_cap_gib: %d, driver_free_memory_gib: 64, declared: %s}"
UP = "model.layers.0.mlp.up_proj.weight"


def thaw(policy: CausalPolicy) -> None:
    for parameter in policy.model.parameters():
        parameter.requires_grad_(True)


def setting(name: str, source: str, override: str, words: str) -> Fault:
    return Fault(name, source, RECIPE, words, code=2, overrides=(override,))


FAULTS = (
    Fault("weights are not numbers", "B20", ("parameters",), "finite",
          tamper=weights(lambda p: next(p.model.parameters()).fill_(math.nan))),
    Fault("one weight is infinite", "B20", ("parameters",), "holds 1 that",
          files=checkpoint(tensors(lambda t: t[UP].view(-1)[3:4].fill_(math.inf)))),
    Fault("a tensor of the checkpoint is missing", "E75", RECIPE, "would be random", code=2,
          files=checkpoint(tensors(lambda t: t.pop(UP)))),
    Fault("a tensor has no place in the model", "E75", RECIPE, "have no place", code=2,
          files=checkpoint(tensors(lambda t: t.update(extra=torch.ones(3))))),
    Fault("config.json names more layers than there are", "E75", RECIPE, "would be random", code=2,
          files=checkpoint(as_json("config.json", lambda c: c.update(num_hidden_layers=3)))),
    Fault("config.json names fewer layers than there are", "E75", RECIPE, "have no place", code=2,
          files=checkpoint(as_json("config.json", lambda c: c.update(num_hidden_layers=1)))),
    Fault("weights file cut off", "E75", RECIPE, "does not load", code=2,
          files=checkpoint(lambda d: (d / "model.safetensors").write_bytes((d / "model.safetensors").read_bytes()[:999]))),
    Fault("declared parent is another checkpoint", "seed", ("parents",), "weights",
          overrides=(f'qualify.parents.weights="{"0" * 64}"',)),
    Fault("the served copy has another weight", "seed", ("parents",), "serving",
          files=lambda base, folder: (checkpoint(tensors(lambda t: t["model.norm.weight"].mul_(1.001)))(base, folder),
                                      (f"qualify.parents.serving={folder.name}/policy",))[1]),
    Fault("the served copy has another config", "seed", ("parents",), "another config.json",
          files=lambda base, folder: (checkpoint(as_json("config.json", lambda c: c.update(rms_norm_eps=1e-2)))(base, folder),
                                      (f"qualify.parents.serving={folder.name}/policy",))[1]),
    Fault("frozen parameters would be trained", "seed", ("parameters",), "declared frozen",
          overrides=('qualify.parameters.frozen=["*embed_tokens*"]',), tamper=weights(thaw)),
    setting("pattern that freezes nothing", "seed", 'qualify.parameters.frozen=["*.router.*"]', "names none"),
    setting("pattern that freezes everything", "seed", 'qualify.parameters.frozen=["*"]', "every parameter"),
    Fault("190 GiB cap, 64 GiB to stay free", "seed", MEMORY, "its cap is 190", code=3, overrides=(_MEMORY % (190, DECLARED),)),
    Fault("198 GiB cap, 64 GiB to stay free", "seed", MEMORY, "64 GiB must stay free", code=3,
          overrides=(_MEMORY % (198, DECLARED),)),
    Fault("a cap that this machine cannot give", "E81", MEMORY, "must stay free", code=3,
          overrides=("qualify.memory={trainer_allocator_cap_gib: 4000, driver_free_memory_gib: 64}",)),
    Fault("a cap below what the process already holds", "E81", MEMORY, "its cap is", code=3,
          overrides=("qualify.memory={trainer_allocator_cap_gib: 0.01}",)),
    # recipes
    setting("group of one", "A8", "rl.group_size=1", "baseline"),
    setting("an unknown key", "E77", "rl.group_sise=4", "Did you mean group_size"),
    setting("temperature 0", "D67", "rl.sampling.temperature=0", "temperature must be > 0"),
    setting("KL in the reward and in the loss", "B32", "rl.objective={name: grpo, beta: 0.04, kl_place: both}", "'loss' or 'reward'"),
    setting("unclipped objective, old rollouts", "C51", "rl.epochs_per_batch=3", "rloo"),
    setting("more prompts than problems", "E77", "rl.prompts_per_batch=1000", "prompts_per_batch must"),
    setting("a bound that holds nothing", "C46", "rl.replay.nats=100", "<= 1"),
    setting("a watched figure that does not exist", "E82", "qualify.watch=[{figure: grad_nrom, above: 1}]", "Did you mean grad_norm"),
    setting("no update at all", "E74", "rl.updates=0", "updates must be"),
)  # fmt: skip
