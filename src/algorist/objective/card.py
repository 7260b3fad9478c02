"""A method on one card: source, reward, coefficient, loss, reduction, needs, defaults with their origin, formulas."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from algorist.digest import JSON
from algorist.objective.config import parse
from algorist.objective.knobs import Objective
from algorist.objective.registry import METHODS
from algorist.objective.spec import Method

SOURCE_TEXT = {
    "dataset": "q, o from the data set",
    "sft_samples": "q from the data set, o sampled once from the SFT model",
    "online": "q from the data set, o sampled from the policy being trained",
}


def smallest(method: Method, **keys: Any) -> Objective:
    """The smallest valid recipe entry of a method, with some keys set.

    Raises pydantic.ValidationError for keys or values it does not have.

    >>> smallest(METHODS["dr_grpo"]).reduction_constant
    1024
    """
    return parse({"name": method.name, **method.example, **keys})


def card(name: str, **keys: Any) -> dict[str, Any]:
    """Everything `algorist explain` prints, as plain data.

    >>> card("rloo")["coefficient"]
    'A, A = r - mean of the other rewards of the group'
    >>> card("grpo", beta=0.0)["needs"]
    []
    >>> card("grpo", beta=0.0)["coefficient"]
    'A, A = (r - mean r) / std r within the group'
    """
    method = METHODS[name]
    cfg = smallest(method, **keys)
    formula = dict(method.formula(cfg))
    coefficient, loss = method.coefficient_text, first_line(method.loss.__doc__)
    if formula["kl"] == "none":
        coefficient, loss = (
            text.replace(" + beta (pi_ref / pi - 1)", "").replace(" + beta KL", "") for text in (coefficient, loss)
        )
    return {
        "name": name,
        "summary": first_line(method.config.__doc__),
        "paper": method.paper,
        "source": SOURCE_TEXT[method.source],
        "reward": method.reward,
        "coefficient": coefficient,
        "credit": first_line(method.credit.__doc__),
        "loss": loss,
        "reduction": cfg.reduction_kind,
        "needs": [*sorted(cfg.needs)],
        "group_size": f">= {cfg.min_group_size}",
        "reuse": "may be trained on more than once"
        if cfg.reuse
        else "one update per batch: no ratio to the old policy",
        "defaults": [*_defaults(cfg, keys, "")],
        "formula": formula,
    }


def first_line(text: str | None) -> str:
    """First line of a docstring."""
    return (text or "").strip().splitlines()[0]


def _defaults(cfg: BaseModel, given: Mapping[str, Any], prefix: str) -> list[Mapping[str, JSON]]:
    rows: list[Mapping[str, JSON]] = []
    own = type(cfg).__annotations__
    for key, field in sorted(type(cfg).model_fields.items(), key=lambda item: item[0] not in own):
        value = getattr(cfg, key)
        if key == "name":
            continue
        if isinstance(value, BaseModel):
            rows += _defaults(value, given.get(key, {}), f"{prefix}{key}.")
            continue
        meaning = field.description or ""
        rows.append({"key": f"{prefix}{key}", "value": value, "required": field.is_required(), "meaning": meaning})
    return rows
