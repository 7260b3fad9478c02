"""The same tensors through TRL's own loss and advantage code and through ours: differences of values and gradients.

    python benchmarks/trl_differential.py [--out benchmarks/results/trl_differential.json]

Needs an importable `trl`. TRL's trainers are not built: their `_compute_loss` runs on a stand-in that hands it stored
log-probs, and the statements of `_generate_and_score_completions` that turn rewards into advantages run as they are.
"""

import argparse
import ast
import inspect
import json
import textwrap
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from algorist.objective import reduce
from algorist.objective.config import parse
from algorist.objective.registry import METHODS
from algorist.objective.spec import CreditInput, TokenBatch

TOLERANCE = 1e-5
"""Both sides are float64 except the advantages, which we hand over as float32."""
P, G, T, BUDGET = 4, 4, 6, 8
D = torch.float64


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One TRL setting and the recipe entry that states the same convention."""

    trl: str
    ours: dict[str, Any]
    loss: dict[str, Any]
    scale: str = "group"
    note: str = ""


_STD = {"std": "sample", "std_epsilon": 1e-4}
_BASE = {"loss_type": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2, "level": "token", "beta": 0.0}
PAIRS = (
    Pair(trl="grpo", ours={"name": "grpo", "beta": 0.0, **_STD}, loss=_BASE),
    Pair(
        trl="grpo, beta 0.04, bias-corrected KL (TRL default)",
        ours={"name": "grpo", "beta": 0.04, "kl": "k3_importance", **_STD},
        loss={**_BASE, "beta": 0.04, "corrected": True},
    ),
    Pair(
        trl="grpo, beta 0.04, plain k3 (the paper)",
        ours={"name": "grpo", "beta": 0.04, "kl": "k3", **_STD},
        loss={**_BASE, "beta": 0.04, "corrected": False},
    ),
    Pair(
        trl="grpo, delta 1.5",
        ours={"name": "grpo", "beta": 0.0, "dual_clip": 1.5, **_STD},
        loss={**_BASE, "delta": 1.5},
    ),
    Pair(
        trl="bnpo",
        ours={"name": "grpo", "beta": 0.0, "reduction": "token_mean", **_STD},
        loss={**_BASE, "loss_type": "bnpo"},
        note="TRL takes the mean over each micro-batch's tokens; equal here because there is one micro-batch.",
    ),
    Pair(
        trl="dr_grpo, scale_rewards none",
        ours={"name": "dr_grpo", "reduction_constant": BUDGET},
        loss={**_BASE, "loss_type": "dr_grpo"},
        scale="none",
    ),
    Pair(
        trl="dapo, epsilon_high 0.28",
        ours={"name": "dapo", "flat_groups": "count", **_STD},
        loss={**_BASE, "loss_type": "dapo", "epsilon_high": 0.28},
        note="TRL keeps flat groups in the denominator: flat_groups: count.",
    ),
    Pair(
        trl="cispo, epsilon_high 1.28",
        ours={"name": "cispo", **_STD},
        loss={**_BASE, "loss_type": "cispo", "epsilon_high": 1.28},
        note="TRL states the cap itself, we a delta: 1 + 0.28.",
    ),
    Pair(
        trl="gspo (grpo loss, sequence level)",
        ours={"name": "gspo", **_STD},
        loss={**_BASE, "level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
    ),
    Pair(
        trl="rloo",
        ours={"name": "rloo", "ratio": "product", "clip": 0.2, "reduction": "sequence_mean"},
        loss={"loss_type": "rloo", "epsilon_low": 0.2, "epsilon_high": 0.2},
        note="TRL clips the product of a response's ratios; default RLOO here has neither ratio nor clip.",
    ),
)


def batch(seed: int) -> tuple[CreditInput, torch.Tensor, torch.Tensor]:
    """Rows of consecutive groups of equal size (TRL cannot hold others), with one failed row; current and reference."""
    g = torch.Generator().manual_seed(seed)
    B = P * G
    rewards = torch.rand(B, generator=g, dtype=D)
    rewards[5] = torch.nan
    lengths = torch.randint(1, T + 1, (B,), generator=g)
    old = -2 * torch.rand(B, T, generator=g, dtype=D)
    logp = old + 0.3 * torch.randn(B, T, generator=g, dtype=D)
    rows = CreditInput(
        rewards=rewards, group=torch.arange(B) // G, mask=torch.arange(T) < lengths[:, None], logp_old=old
    )
    return rows, logp, -2 * torch.rand(B, T, generator=g, dtype=D)


def trl_advantages(rewards: torch.Tensor, scale: str, *, rloo: bool, generations: int = G) -> torch.Tensor:
    """TRL's own statements from `unscorable_mask = ...` to `advantages = torch.nan_to_num(...)`."""
    from trl.trainer import grpo_trainer, rloo_trainer

    module: Any = rloo_trainer if rloo else grpo_trainer
    trainer = module.RLOOTrainer if rloo else module.GRPOTrainer
    source = textwrap.dedent(inspect.getsource(trainer._generate_and_score_completions))
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]

    def starts(node: ast.stmt, text: str) -> bool:
        return (ast.get_source_segment(source, node) or "").startswith(text)

    first = next(i for i, node in enumerate(body) if starts(node, "unscorable_mask ="))
    last = next(i for i, node in enumerate(body) if starts(node, "advantages = torch.nan_to_num"))
    stand_in = SimpleNamespace(
        multi_objective_aggregation="sum_then_normalize",
        reward_weights=torch.ones(1, dtype=rewards.dtype),
        scale_rewards=scale,
        reward_clip_range=None,
        beta=0.0,
        normalize_advantages=False,
    )
    scope: dict[str, Any] = {
        **vars(module),
        "self": stand_in,
        "device": "cpu",
        "num_generations": generations,
        "rewards_per_func": rewards[:, None],
    }
    exec(compile(ast.Module(body[first : last + 1], []), module.__file__, "exec"), scope)
    return scope["advantages"]


def trl_loss(pair: Pair, rows: CreditInput, logp: torch.Tensor, ref: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """TRL's `_compute_loss` on stored log-probs."""
    from trl.trainer.grpo_trainer import GRPOTrainer
    from trl.trainer.rloo_trainer import RLOOTrainer

    cfg, mask = pair.loss, rows.mask.to(D)
    accelerator = SimpleNamespace(
        num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, gather_for_metrics=lambda x: x
    )
    stand_in = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logp, torch.zeros_like(logp), None),
        aux_loss_enabled=False,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        importance_sampling_level=cfg.get("level", "token"),
        beta=cfg.get("beta", 0.0),
        loss_type=cfg["loss_type"],
        epsilon_low=cfg["epsilon_low"],
        epsilon_high=cfg["epsilon_high"],
        max_completion_length=BUDGET,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
        current_gradient_accumulation_steps=1,
        _entropy_bonus_enabled=False,
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(
            use_bias_correction_kl=cfg.get("corrected", True), delta=cfg.get("delta"), steps_per_generation=1
        ),
        _metrics={"train": defaultdict(list)},
    )
    ids = torch.zeros(rows.mask.shape, dtype=torch.int64)
    assert rows.logp_old is not None
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": a,
        "old_per_token_logps": rows.logp_old,
        "old_logps": (rows.logp_old * mask).sum(1),
        "ref_per_token_logps": ref,
        "num_items_in_batch": mask.sum(),
    }
    trainer: Any = RLOOTrainer if cfg["loss_type"] == "rloo" else GRPOTrainer
    return trainer._compute_loss(stand_in, None, inputs)


def compare(pair: Pair, seed: int) -> dict[str, float]:
    """Largest absolute differences of advantages, loss and gradient.

    TRL leaves a failed row in the loss with advantage 0, so its tokens stay in every denominator; we take it out. To
    compare the formulas alone, the failed row is left out of both losses (its group's baseline has already lost it).
    """
    rows, logp, ref = batch(seed)
    cfg = parse(pair.ours)
    method = METHODS[pair.ours["name"]]
    credit = method.credit(rows, cfg)
    theirs = trl_advantages(rows.rewards, pair.scale, rloo=pair.loss["loss_type"] == "rloo")
    keep = rows.scored
    kept = CreditInput(
        rewards=rows.rewards[keep], group=rows.group[keep], mask=rows.mask[keep], logp_old=rows.logp_old[keep]
    )
    x, y = (logp[keep].clone().requires_grad_() for _ in range(2))
    trl = trl_loss(pair, kept, x, ref[keep], theirs[keep])
    tokens = TokenBatch(
        logp=y,
        logp_old=kept.logp_old,
        logp_behaviour=kept.logp_old,
        logp_ref=ref[keep],
        advantage=credit.advantage[keep].double(),
        mask=credit.mask[keep],
    )
    weight = reduce.weights_of(cfg, credit, rows.group, dtype=D)[keep]
    ours = (method.loss(tokens, cfg) * weight).sum()
    (gx,) = torch.autograd.grad(trl, x)
    (gy,) = torch.autograd.grad(ours, y)
    gap = (credit.advantage.double() - theirs[:, None]).abs()
    return {
        "advantage": float(gap[credit.mask].max()),
        "loss": abs(float(trl.detach()) - float(ours.detach())),
        "gradient": float((gx - gy).abs().max()),
    }


def explained() -> list[dict[str, Any]]:
    """The differences that stay, each measured, with its reason."""
    rewards = torch.full((64,), 0.1, dtype=torch.float32)
    rows = CreditInput(rewards=rewards, group=torch.zeros(64, dtype=torch.int64), mask=torch.ones(64, 1) > 0)
    flat = METHODS["grpo"].credit(rows, parse({"name": "grpo", "beta": 0.0, **_STD})).advantage
    noise = trl_advantages(rewards, "group", rloo=False, generations=64)
    pair = PAIRS[0]
    rows, logp, ref = batch(0)
    advantage = trl_advantages(rows.rewards, "group", rloo=False)
    ours = {}
    for setting in ("scored", "all"):
        cfg = parse({**pair.ours, "reduction_rows": setting})
        credit = METHODS["grpo"].credit(rows, cfg)
        assert rows.logp_old is not None
        tokens = TokenBatch(
            logp=logp,
            logp_old=rows.logp_old,
            logp_behaviour=rows.logp_old,
            advantage=credit.advantage.double(),
            mask=credit.mask,
        )
        ours[setting] = float((METHODS["grpo"].loss(tokens, cfg) * reduce.weights_of(cfg, credit, rows.group)).sum())
    return [
        {
            "what": "64 equal float32 rewards of 0.1: largest advantage",
            "trl": float(noise.abs().max()),
            "ours": float(flat.abs().max()),
            "why": "TRL divides the rounding error of the mean by std + 1e-4; we test max == min.",
        },
        {
            "what": "grpo loss of a batch with one failed row",
            "trl": float(trl_loss(pair, rows, logp, ref, advantage)),
            "ours": ours["scored"],
            "ours_with_reduction_rows_all": ours["all"],
            "why": "TRL keeps the failed row in the denominator; we take it out unless reduction_rows: all.",
        },
    ]


def run(seeds: int = 5) -> dict[str, Any]:
    """The whole comparison as plain data."""
    import trl

    rows = []
    for pair in PAIRS:
        each = [compare(pair, seed) for seed in range(seeds)]
        worst = {key: max(result[key] for result in each) for key in each[0]}
        agrees = all(value <= TOLERANCE for value in worst.values())
        rows.append({"trl": pair.trl, "recipe": pair.ours, **worst, "agrees": agrees, "note": pair.note})
    return {"trl": trl.__version__, "tolerance": TOLERANCE, "seeds": seeds, "rows": rows, "explained": explained()}


def main() -> int:
    """Print the table; write it where asked. Exit code 1 where a row disagrees."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result here")
    options = parser.parse_args()
    result = run()
    for row in result["rows"]:
        sign = "agrees" if row["agrees"] else "DIFFERS"
        print(f"{row['trl']:50} {row['advantage']:.1e} {row['loss']:.1e} {row['gradient']:.1e} {sign}")
    for row in result["explained"]:
        print(f"{row['what']}: trl {row['trl']:.6g}, ours {row['ours']:.6g}. {row['why']}")
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if all(row["agrees"] for row in result["rows"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())
