"""The formulas that run under a config, in words and symbols; torch-free, for ledger, report and documents."""

from collections.abc import Mapping

from algorist.objective.config import (
    CISPOConfig,
    DPOConfig,
    GRPOProcessConfig,
    GSPOConfig,
    PPOConfig,
    ReinforceConfig,
    RLOOConfig,
    SFTConfig,
)
from algorist.objective.knobs import (
    ClipKnobs,
    CorrectionKnob,
    DualKnobs,
    GroupKnobs,
    KLKnobs,
    Objective,
    RatioKnobs,
    RejectionKnobs,
    StdKnobs,
)

KEYS = (
    "estimator",
    "std",
    "epsilon",
    "one_member_group",
    "uneven_groups",
    "errors",
    "reduction",
    "denominator",
    "kl",
    "ratio",
    "clip",
    "importance",
    "flat_batch",
)
"""Every formula has exactly these entries, in this order."""

_KL_TEXT = {
    "k1": "d = log pi - log pi_ref; gradient 1",
    "k2": "d^2 / 2; gradient d",
    "k3": "exp(-d) + d - 1; gradient 1 - pi_ref / pi",
    "k3_plus": "value exp(-d) + d - 1; gradient d",
    "k3_importance": "(pi / pi_old) (exp(-d) + d - 1); gradient (pi / pi_old) d",
}
_STD_TEXT = {
    "population": "population standard deviation (divide by G)",
    "sample": "sample standard deviation (divide by G - 1)",
    "leave_one_out": "sample standard deviation of the others; no division where they do not differ",
    "none": "no division",
}
_REDUCTION_TEXT = {
    "sequence_mean": "sequence mean: 1 / (R |o_i|)",
    "token_mean": "token mean: 1 / sum_i |o_i|",
    "group_token_mean": "prompt-group token mean: 1 / (P sum_{j in group} |o_j|)",
    "constant": "constant: 1 / (R C)",
    "pair_mean": "mean over pairs, log ratios averaged over each response",
    "pair_sum": "mean over pairs, log ratios summed over each response",
}
_ROWS_TEXT = {
    "scored": "rows with a reward, empty responses included",
    "nonempty": "rows with a reward and at least one trained token",
    "all": "all rows of the batch, failed ones included",
}


def formula(cfg: Objective) -> Mapping[str, str]:
    """Estimator, denominators, KL, ratio, clip and edge cases that really run; keys are `KEYS`.

    >>> from algorist.objective.config import GRPOConfig, RLOOConfig
    >>> formula(RLOOConfig())["estimator"]
    'A_i = r_i - mean of the other rewards of the group'
    >>> formula(GRPOConfig())["kl"]
    'in the loss, beta = 0.04: k3 = exp(-d) + d - 1; gradient 1 - pi_ref / pi'
    """
    return {
        "estimator": _estimator(cfg) + _redistribution(cfg),
        "std": _std(cfg),
        "epsilon": _epsilon(cfg),
        "one_member_group": _one_member(cfg),
        "uneven_groups": "grouped by problem id; sizes may differ and order is free; a row without a group is refused",
        "errors": "rows without a reward leave their group before the baseline and get exactly 0",
        "reduction": _REDUCTION_TEXT[cfg.reduction_kind],
        "denominator": _denominator(cfg),
        "kl": _kl(cfg),
        "ratio": _ratio(cfg),
        "clip": _clip(cfg),
        "importance": _importance(cfg),
        "flat_batch": _flat(cfg),
    }


def _estimator(cfg: Objective) -> str:
    if isinstance(cfg, SFTConfig):
        return "A = 1 on every trained token"
    if isinstance(cfg, RejectionKnobs):
        return "A = 1 for a correct response, 0 for a wrong one"
    if isinstance(cfg, DPOConfig):
        average = "mean" if cfg.length == "mean" else "sum"
        z = f"z = beta ({average} d+ - {average} d-), beta = {cfg.beta}"
        return f"pairs of correct and wrong; GC = +-beta sigma(-z), {z}"
    if isinstance(cfg, PPOConfig):
        whitened = "" if cfg.whiten == "none" else f", whitened over all trained tokens ({cfg.whiten} std)"
        return f"GAE, gamma = {cfg.gamma}, lambda = {cfg.lam}, mask holes: {cfg.holes}{whitened}"
    if isinstance(cfg, ReinforceConfig):
        base = "A_i = r_i" if cfg.baseline == "none" else "A_i = r_i - mean over the batch"
        return base if cfg.whiten == "none" else f"{base}, whitened over all trained tokens ({cfg.whiten} std)"
    if isinstance(cfg, GRPOProcessConfig):
        return "A_it = sum of the group-normalised rewards of the steps ending at or after t"
    if isinstance(cfg, StdKnobs) and cfg.std == "leave_one_out":
        return "A_i = (r_i - mean of the others) / std of the others"
    if isinstance(cfg, StdKnobs) and cfg.std != "none":
        return "A_i = (r_i - mean r) / std r within the group"
    if isinstance(cfg, RLOOConfig):
        return "A_i = r_i - mean of the other rewards of the group"
    return "A_i = r_i - mean r within the group"


def _redistribution(cfg: Objective) -> str:
    if isinstance(cfg, GroupKnobs) and cfg.redistribution is not None:
        return f"; correct responses of mixed groups share by quality, factor capped at {cfg.redistribution.cap:g}"
    return ""


def _std(cfg: Objective) -> str:
    if isinstance(cfg, StdKnobs):
        return _STD_TEXT[cfg.std]
    return "no division within groups"


def _epsilon(cfg: Objective) -> str:
    flat = "equal rewards (max == min) give exactly 0"
    if isinstance(cfg, StdKnobs) and cfg.std != "none":
        return f"{cfg.std_epsilon} added to the std; {flat}"
    return f"none; {flat}" if isinstance(cfg, GroupKnobs) else "none"


def _one_member(cfg: Objective) -> str:
    if isinstance(cfg, GroupKnobs):
        return {
            "refuse": "refused; a group that errors left with one row gets 0",
            "zero": "advantage 0",
            "raw": "advantage = its raw reward",
        }[cfg.group_of_one]
    return "has no pair: advantage 0" if isinstance(cfg, DPOConfig) else "allowed: no group baseline"


def _denominator(cfg: Objective) -> str:
    parts = []
    if cfg.reduction_kind in ("sequence_mean", "constant"):
        parts.append(f"R = {_ROWS_TEXT[cfg.reduction_rows]}")
    if cfg.reduction_kind == "group_token_mean":
        parts.append(f"P = groups of {_ROWS_TEXT[cfg.reduction_rows]}")
    if cfg.reduction_kind == "constant":
        parts.append(f"C = {cfg.reduction_constant} tokens")
    if cfg.reduction_kind in ("pair_mean", "pair_sum"):
        parts.append("unpaired rows leave")
    if isinstance(cfg, GroupKnobs):
        parts.append("flat groups stay in" if cfg.flat_groups == "count" else "flat groups leave")
    if isinstance(cfg, RejectionKnobs):
        parts.append("wrong rows stay in" if cfg.wrong_rows == "zero" else "wrong rows leave")
    parts.append("truncated responses' tokens leave" if cfg.mask_truncated else "truncated responses stay in")
    parts.append("counts of the whole batch")
    return "; ".join(parts)


def _kl(cfg: Objective) -> str:
    if isinstance(cfg, PPOConfig) and cfg.beta > 0:
        return f"in each token's reward, beta = {cfg.beta}: k1 = d = log pi_old - log pi_ref"
    if isinstance(cfg, KLKnobs) and cfg.beta > 0:
        clamp = "" if cfg.kl_clamp is None else f"; clamped at {cfg.kl_clamp}, gradient 0 beyond"
        if cfg.kl_place == "reward":
            value = _KL_TEXT[cfg.kl].split(";")[0]
            where = "in the reward, summed over the response before the baseline"
            return f"{where}, beta = {cfg.beta}: {cfg.kl} = {value}{clamp}"
        return f"in the loss, beta = {cfg.beta}: {cfg.kl} = {_KL_TEXT[cfg.kl]}{clamp}"
    return "inside z, against the reference" if isinstance(cfg, DPOConfig) else "none"


def _ratio(cfg: Objective) -> str:
    clamp = cfg.log_ratio_clamp if isinstance(cfg, RatioKnobs) else None
    tail = f"; log ratio clamped at {clamp}, gradient 0 beyond" if clamp else ""
    if isinstance(cfg, GSPOConfig):
        return f"response: geometric mean of pi / pi_old{tail}"
    if isinstance(cfg, CISPOConfig):
        return f"token: pi / pi_old without gradient, times log pi{tail}"
    if isinstance(cfg, RLOOConfig) and cfg.ratio != "none":
        return {"token": "token", "geometric": "response: geometric mean of", "product": "response: product of"}[
            cfg.ratio
        ] + f" pi / pi_old{tail}"
    if isinstance(cfg, ClipKnobs):
        return f"token: pi / pi_old{tail}"
    return "none: plain log pi" if not isinstance(cfg, DPOConfig) else "none: log ratios to the reference"


def _clip(cfg: Objective) -> str:
    if isinstance(cfg, RLOOConfig) and cfg.clip is not None:
        return f"PPO clip to [{1 - cfg.clip:g}, {1 + cfg.clip:g}]"
    if isinstance(cfg, CISPOConfig):
        return f"the weight is clipped to [{1 - cfg.clip_low:g}, {1 + cfg.clip_high:g}]; every token keeps a gradient"
    if isinstance(cfg, ClipKnobs):
        dual = f", and {cfg.dual_clip:g} where A < 0" if isinstance(cfg, DualKnobs) and cfg.dual_clip else ""
        return f"PPO clip to [{1 - cfg.clip_low:g}, {1 + cfg.clip_high:g}]{dual}"
    return "none"


def _importance(cfg: Objective) -> str:
    if not isinstance(cfg, CorrectionKnob):
        return "none"
    c = cfg.correction
    veto = f"; veto below {c.veto:g}" if c.veto > 0 else ""
    if c.kind == "none":
        return f"none{veto}"
    action = f"truncated at {c.high:g}" if c.kind == "truncate" else f"masked outside [{c.low:g}, {c.high:g}]"
    carry = f", survivors weigh {c.carry}" if c.kind == "mask" else (f", 0 below {c.low:g}" if c.low > 0 else "")
    return f"w = pi_old / mu per {c.level}, {action}{carry}{veto}; dropped tokens stay in the denominator"


def _flat(cfg: Objective) -> str:
    if isinstance(cfg, SFTConfig):
        return "cannot occur"
    return "no token has an advantage: the update is skipped (weights, moments, learning rate unchanged) and recorded"
