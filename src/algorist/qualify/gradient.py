"""Loss and gradient of one step, computed once more from what the method states.

    loss = sum over all tokens of weight * token loss          gradient = - sum of weight * GC * d log pi   (DeepSeekMath eq. 5)

The loss comes from the log-probabilities of the step itself and costs nothing. The gradient costs a pass of its own, for a few
small tensors only, so that neither another copy of all gradients nor the real ones are touched.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from algorist.objective.reduce import weights_of
from algorist.objective.registry import METHODS
from algorist.objective.spec import TokenBatch
from algorist.policy.model import CausalPolicy
from algorist.train.trainer import Assigned, Trainer

_METHODS: Final = dict(METHODS)
_TENSORS: Final = 8
"""Small parameters whose whole gradient is computed again."""


def loss_again(trainer: Trainer, assigned: Assigned, logp: Float[Tensor, "B T"]) -> tuple[float, float] | None:
    """(loss, sum of the absolute token losses); None where the loss needs more than log-probabilities: a value head."""
    objective = trainer.objective
    if "value" in objective.needs:
        return None
    weight = weights_of(objective, assigned.credit, assigned.rows.group)
    tokens = _METHODS[trainer.method.name].loss(_tokens(assigned, logp), objective).double() * weight
    return float(tokens.sum()), float(tokens.abs().sum())


def gradient_again(trainer: Trainer, assigned: Assigned, chosen: Mapping[str, nn.Parameter]) -> Float[Tensor, "N"]:
    """The gradient of the chosen parameters, one after the other, flat."""
    policy, credit, objective = trainer.policy, assigned.credit, trainer.objective
    method = _METHODS[trainer.method.name]
    weight = weights_of(objective, credit, assigned.rows.group)
    trained = credit.mask if objective.needs else credit.mask & (credit.advantage != 0)
    rows = trained.any(1).nonzero().squeeze(1).tolist()
    tokens = [assigned.rows.tokens[i] for i in rows]
    size = trainer.micro_batch_tokens
    if credit.pair is None or method.together == "row":
        batches = policy.micro_batches(tokens, max_tokens=size)
    else:
        pair = credit.pair[torch.tensor(rows)].tolist()
        batches = policy.paired_micro_batches(tokens, pair, max_tokens=size)
    with _only(policy, chosen):
        for batch in batches:
            with policy.compute():
                scores = policy.score(
                    batch, tokens, temperature=trainer.temperature, num_tokens=assigned.rows.num_tokens
                )
            index = torch.tensor([rows[i] for i in scores.rows])
            part = _tokens(assigned, scores.logp, index, scores.value)
            share = weight[index].to(policy.device)
            if "value" in objective.needs:  # the value loss has no coefficient
                loss = (method.loss(part, objective) * share).sum()
            else:
                loss = -(method.coefficient(part, objective).detach() * share * scores.logp).sum()
            loss.backward()
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in chosen.values()]
        return torch.cat([g.detach().double().cpu().flatten() for g in found])


def small(named: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """A few small tensors with a gradient, spread over the depth of the model; norms, in most."""
    having = [(name, p) for name, p in named.items() if p.grad is not None]
    limit = sorted(p.numel() for _, p in having)[min(len(having), 2 * _TENSORS) - 1]
    fitting = [(name, p) for name, p in having if p.numel() <= limit]
    return dict(fitting[:: max(1, len(fitting) // _TENSORS)])


@contextlib.contextmanager
def _only(policy: CausalPolicy, chosen: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Inside, the chosen parameters alone have gradients, fresh ones; afterwards everything is as it was."""
    named = dict(policy.named_parameters())
    kept = {name: p.grad for name, p in chosen.items()}
    for name, p in named.items():
        p.requires_grad_(name in chosen)
        if name in chosen:
            p.grad = None
    try:
        yield
    finally:
        for name, p in named.items():
            p.requires_grad_(True)
            if name in chosen:
                p.grad = kept[name]


def _tokens(assigned: Assigned, logp: Tensor, index: Tensor | None = None, value: Tensor | None = None) -> TokenBatch:
    """The rows `index` (all) as the objective sees them."""

    def pick(x: Tensor) -> Tensor:
        return (x if index is None else x[index]).to(logp.device)

    def maybe(x: Tensor | None) -> Tensor | None:
        return None if x is None else pick(x)

    credit = assigned.credit
    return TokenBatch(
        logp=logp,
        logp_old=logp.detach() if assigned.logp_old is None else pick(assigned.logp_old),
        logp_behaviour=pick(assigned.rows.behaviour),
        advantage=pick(credit.advantage),
        mask=pick(credit.mask),
        logp_ref=maybe(assigned.logp_ref),
        value=value,
        value_old=maybe(assigned.value_old),
        returns=maybe(credit.returns),
        pair=maybe(credit.pair),
    )
