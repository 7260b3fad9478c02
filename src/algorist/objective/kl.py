"""Estimators of KL(pi || pi_ref) from one sampled token, each with the gradient it truly has.

d = log pi - log pi_ref at the sampled token. Unbiased values do not make unbiased gradients:

    name           value                        slope in a loss, d/d log pi   expected gradient on policy
    k1             d                            1                             0: no pull to the reference at all
    k2             d^2 / 2                      d                             that of KL(pi || pi_ref)
    k3             exp(-d) + d - 1              1 - exp(-d)                   that of KL(pi_ref || pi)
    k3_plus        that of k3                   that of k2                    that of KL(pi || pi_ref)
    k3_importance  (pi / pi_old) k3             (pi / pi_old) d               that of KL(pi || pi_ref), off policy too

The paper's eq. 21 has the slope of plain k3. Schulman 2020 (approximating KL divergence) names k1 to k3.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from algorist.objective.knobs import KL


def estimate(
    kind: KL,
    logp: Float[Tensor, "*N"],
    logp_ref: Float[Tensor, "*N"],
    logp_old: Float[Tensor, "*N"],
    clamp: float | None = None,
) -> Float[Tensor, "*N"]:
    """Per-token estimate in nats whose autograd slope is `slope(kind, ...)`. DeepSeekMath eq. 4 is k3 (paper.eq_4).

    clamp: estimates are cut to [-clamp, clamp], with slope 0 beyond (a token that left the reference entirely is then
    no longer pulled back; off by default).

    >>> p, ref = torch.tensor([0.5]).log(), torch.tensor([0.4]).log()
    >>> [round(estimate(kind, p, ref, p).item(), 4) for kind in ("k1", "k2", "k3")]
    [0.2231, 0.0249, 0.0231]
    """
    d = logp - logp_ref
    if kind == "k1":
        value = d
    elif kind == "k2":
        value = d.square() / 2
    else:
        value = torch.exp(-d) + d - 1
    if kind == "k3_plus":
        half = d.square() / 2
        value = half + (value - half).detach()
    if kind == "k3_importance":
        value = torch.exp(logp - logp_old) * value
    return value if clamp is None else value.clamp(-clamp, clamp)


def slope(
    kind: KL,
    logp: Float[Tensor, "*N"],
    logp_ref: Float[Tensor, "*N"],
    logp_old: Float[Tensor, "*N"],
    clamp: float | None = None,
) -> Float[Tensor, "*N"]:
    """d estimate / d log pi, by hand. For k3: 1 - pi_ref / pi, so eq. 21 adds beta (pi_ref / pi - 1).

    >>> p, ref = torch.tensor([0.5]).log(), torch.tensor([0.4]).log()
    >>> [round(slope(kind, p, ref, p).item(), 4) for kind in ("k1", "k2", "k3", "k3_plus", "k3_importance")]
    [1.0, 0.2231, 0.2, 0.2231, 0.2231]
    """
    d = logp - logp_ref
    if kind == "k1":
        value = torch.ones_like(d)
    elif kind == "k3":
        value = 1 - torch.exp(-d)
    elif kind == "k3_importance":
        value = torch.exp(logp - logp_old) * d
    else:
        value = d
    if clamp is None:
        return value
    size = estimate(kind, logp, logp_ref, logp_old)
    return torch.where(size.abs() <= clamp, value, torch.zeros_like(value))
