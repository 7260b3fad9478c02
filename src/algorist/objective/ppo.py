"""PPO with a value head, GAE and the KL fee in each token's reward. DeepSeekMath eq. 1, 2, 15 to 18."""

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.errors import InputError
from algorist.objective import advantage
from algorist.objective.config import PPOConfig
from algorist.objective.credit import finish, token_kl
from algorist.objective.spec import Credit, CreditInput, Method, TokenBatch
from algorist.objective.surrogate import clipped_gain, clipped_push


def credit(rows: CreditInput, cfg: PPOConfig) -> Credit:
    """r_t = -beta log(pi_old / pi_ref), plus the reward on the last trained token (eq. 2); A by GAE; return = A + V."""
    if rows.value is None:
        raise InputError("ppo needs the value of every token at the start of the update: give CreditInput.value")
    mask = rows.mask & rows.scored[:, None]
    outcome = torch.where(rows.scored, rows.rewards.to(torch.float64), 0.0)
    token_rewards = advantage.last_token(outcome, mask)
    if cfg.beta > 0:
        token_rewards = token_rewards - cfg.beta * token_kl(rows, "k1", None)
    value = torch.where(mask, rows.value.detach(), 0.0).to(torch.float64)
    tokens = advantage.gae(token_rewards, value, mask, gamma=cfg.gamma, lam=cfg.lam, holes=cfg.holes)
    returns = tokens + value
    if cfg.whiten != "none":
        tokens = advantage.whiten(tokens, mask, cfg.whiten)
    return finish(rows, cfg, tokens, returns=returns)


def loss(batch: TokenBatch, cfg: PPOConfig) -> Float[Tensor, "B T"]:
    """-w min(r A, clip(r) A) + value_weight (V - return)^2."""
    b = batch.clean()
    return -clipped_gain(b, cfg) + cfg.value_weight * value_loss(b, cfg)


def coefficient(batch: TokenBatch, cfg: PPOConfig) -> Float[Tensor, "B T"]:
    """w r A where the clip lets it count: eq. 18 at pi_old = pi. The value loss leaves the policy's log-probs alone."""
    return clipped_push(batch.clean(), cfg)


def value_loss(b: TokenBatch, cfg: PPOConfig) -> Float[Tensor, "B T"]:
    """(V - return)^2, or the larger of it and that of V held within value_clip of its start (Schulman et al. 2017)."""
    assert b.value is not None, "ppo needs value (cfg.needs says so)"
    assert b.returns is not None, "ppo needs Credit.returns"
    plain = (b.value - b.returns).square()
    if cfg.value_clip is None:
        return plain
    assert b.value_old is not None, "value_clip needs value_old"
    held = b.value_old + (b.value - b.value_old).clamp(-cfg.value_clip, cfg.value_clip)
    return torch.maximum(plain, (held - b.returns).square())


METHOD = Method(
    name="ppo",
    paper="DeepSeekMath eq. 1, 2, A.1.5, eq. 15 to 18; Schulman et al. 2017",
    source="online",
    reward="Model or Rule: one reward per response, minus the KL fee per token",
    coefficient_text="A_t by GAE",
    config=PPOConfig,
    credit=credit,
    loss=loss,
    coefficient=coefficient,
    example={},
)
