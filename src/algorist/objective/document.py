"""docs/paper.md and docs/algorithms.md, written from the code.

    python -m algorist.objective.document [--check] [DOCS]

DOCS is the folder the two pages live in (default: docs). --check writes nothing and answers 1 where a page is stale.
"""

import argparse
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from algorist import paper
from algorist.objective import kl, knobs, ratio, reduce, shaping
from algorist.objective.card import SOURCE_TEXT, card, first_line, smallest
from algorist.objective.equations import EQUATIONS
from algorist.objective.registry import METHODS
from algorist.objective.shaping_config import EffortLength, LengthDeduction, Overlong
from algorist.objective.spec import CreditInput, Method, TokenBatch

_NOTE = "<!-- Written from the code by `python -m algorist.objective.document`; do not edit. -->"
REWARDS, CORRECT = (0.9, 0.1, 0.3, 0.7), (True, False, False, True)
"""The running example of the annotated paper: four answers to one question."""

_PAPER_HEAD = f"""# The paper, equation by equation

{_NOTE}

DeepSeekMath (Shao et al. 2024). The oracle is `src/algorist/paper.py`: each equation as a naive function of plain
floats, doctested with the worked numbers, never called in production. The production code is tested against it; tests
named without a file are in `tests/objective/test_contract.py`, the others are relative to `tests/`.
"""

_PAPER_TAIL = """
The same table, from the registry and with the methods that came later: [algorithms.md](algorithms.md).

## Where the printed paper and its mathematics differ

- **Equation 14** is printed without the leading beta and with the log ratios of one token. The gradient of equation 12,
  which averages log ratios over each response, has the coefficient beta sigma(beta (mean log ratio of o- - mean log
  ratio of o+)), one per pair. `paper.eq_14` is that, `paper.eq_14_printed` the printed one; central differences of
  `paper.eq_12` tell them apart.
- **Algorithm 1, line 11** names equation 21 as the objective. Equation 21 is its gradient coefficient; the objective is
  equation 3. At pi_old = pi the coefficient is the slope of the objective (`paper.eq_21`).
- **Equation 12** averages log ratios over a response where the original DPO sums them: `length: mean` and `length: sum`
  of the method `dpo`.
- **The standard deviation** of 4.1.2 and 4.1.3 is not named. The default here is the population one; `std: sample` is
  the other.
- **The clip range** epsilon has no stated value. The default is PPO's 0.2.
"""

_ALGORITHMS_HEAD = f"""# The methods as gradient coefficients

{_NOTE}

Equation 5 of DeepSeekMath: grad J = (1 / |o|) sum over tokens of GC grad log pi. A method is a data source, a reward
and a coefficient GC. `algorist explain METHOD` prints one of them, also with changed settings (`--set beta=0`). Tests
prove for each that autograd of its loss is its coefficient.

## Table 10, from the registry
"""

_EXAMPLE_HEAD = f"""
## The same four answers under every method

Rewards {", ".join(map(str, REWARDS))}; the first and the last are right; policy = old policy = reference; one token
each, default settings, V = 0.5 for PPO. Computed while this page is written.
"""

_SHARED: tuple[tuple[type[BaseModel], str], ...] = (
    (knobs.Objective, "Every method"),
    (knobs.RejectionKnobs, "Rejection sampling"),
    (knobs.KLKnobs, "KL to a reference"),
    (knobs.GroupKnobs, "Group baseline"),
    (knobs.StdKnobs, "Division by the spread"),
    (knobs.RatioKnobs, "Ratio to the old policy"),
    (knobs.ClipKnobs, "Clip"),
    (knobs.DualKnobs, "Dual clip"),
    (knobs.Correction, "`correction`: importance correction"),
    (knobs.Redistribution, "`redistribution`"),
)
_SHAPING: tuple[tuple[type[BaseModel], str | None], ...] = (
    (LengthDeduction, shaping.length_deduction.__doc__),
    (Overlong, shaping.overlong.__doc__),
    (EffortLength, shaping.effort_length.__doc__),
)


def paper_page() -> str:
    """docs/paper.md: equation, oracle, production code, test."""
    rows = []
    for equation in EQUATIONS:
        oracle = pkgutil.resolve_name(f"algorist.paper:{equation.oracle}")
        for target in equation.production:
            pkgutil.resolve_name(target)  # a renamed function fails here, not in a reader's hands
        what = equation.what or first_line(oracle.__doc__)
        code = ", ".join(f"`{target.removeprefix('algorist.')}`" for target in equation.production)
        tests = ", ".join(f"`{test}`" for test in equation.tests)
        rows.append((equation.label, what, f"`{equation.oracle}`", code, tests))
    lines = [_PAPER_HEAD, *_table(("equation", "what it says", "oracle", "production", "tests"), rows)]
    lines += ["", "## Table 10 as printed", ""]
    lines += _table(("method", "data source", "reward function", "gradient coefficient"), paper.TABLE_10)
    return "\n".join([*lines, _PAPER_TAIL])


def algorithms_page() -> str:
    """docs/algorithms.md: Table 10, live."""
    overview = [
        (f"[{m.name}](#{m.name})", SOURCE_TEXT[m.source], m.reward, f"`{m.coefficient_text}`") for m in METHODS.values()
    ]
    example = [(name, *(f"{x:.3f}" for x in running_example(method))) for name, method in METHODS.items()]
    cards = [card(name) for name in METHODS]
    common = {key: text for key, text in cards[0]["formula"].items() if all(c["formula"][key] == text for c in cards)}
    lines = [_ALGORITHMS_HEAD, *_table(("method", "data source", "reward", "gradient coefficient"), overview)]
    lines += [_EXAMPLE_HEAD, *_table(("method", "0.9, right", "0.1, wrong", "0.3, wrong", "0.7, right"), example)]
    lines += ["", "## Method by method", "", "For all of them:", ""]
    lines += [f"- {key.replace('_', ' ')}: {text}" for key, text in common.items()]
    for content in cards:
        lines += _section(content, common)
    lines += _conventions()
    return "\n".join(lines).rstrip() + "\n"


def running_example(method: Method) -> list[float]:
    """The coefficient of each of the four answers, on policy, with one token each.

    >>> [round(x, 2) for x in running_example(METHODS["grpo"])]
    [1.26, -1.26, -0.63, 0.63]
    """
    cfg = smallest(method)
    one = torch.full((4, 1), 0.5, dtype=torch.float64).log()
    rows = CreditInput(
        rewards=torch.tensor(REWARDS, dtype=torch.float64),
        group=torch.zeros(4, dtype=torch.int64),
        mask=torch.ones(4, 1, dtype=torch.bool),
        correct=torch.tensor(CORRECT),
        logp_old=one,
        logp_ref=one,
        value=torch.full((4, 1), 0.5, dtype=torch.float64),
        step_ends=torch.zeros(4, 1, dtype=torch.int64),
        step_rewards=torch.tensor(REWARDS, dtype=torch.float64)[:, None],
    )
    credit = method.credit(rows, cfg)
    tokens = TokenBatch(
        logp=one,
        logp_old=one,
        logp_behaviour=one,
        logp_ref=one,
        advantage=credit.advantage.double(),
        mask=credit.mask,
        pair=credit.pair,
    )
    return [float(x) for x in method.coefficient(tokens, cfg)[:, 0]]


def _section(content: Mapping[str, Any], common: Mapping[str, str]) -> list[str]:
    own = METHODS[content["name"]].config.__annotations__
    rows = [
        (f"`{row['key']}`", "required" if row["required"] else f"`{_value(row['value'])}`", row["meaning"])
        for row in content["defaults"]
        if row["key"] in own or (row["key"] == "reduction_constant" and row["value"] is not None)
    ]
    facts = ("paper", "source", "reward", "coefficient", "credit", "loss", "group_size", "reuse")
    needs = ", ".join(content["needs"]) or "nothing beyond rewards and log-probs"
    formula = [(key, text) for key, text in content["formula"].items() if key not in common and text != "none"]
    return [
        "",
        f"### {content['name']}",
        "",
        content["summary"],
        "",
        *(f"- {key.replace('_', ' ')}: {content[key]}" for key in facts),
        f"- needs: {needs}",
        *(f"- {key.replace('_', ' ')}: {text}" for key, text in formula),
        "",
        *(_table(("own setting", "default", "meaning (origin)"), rows) if rows else ["No settings of its own."]),
    ]


def _conventions() -> list[str]:
    lines = ["", "## What can be chosen", ""]
    for title, text in (
        ("Reductions", reduce.weights.__doc__),
        ("KL estimators", kl.__doc__),
        ("Ratios", ratio.log_ratio.__doc__),
        ("Importance correction", ratio.correction_weight.__doc__),
    ):
        lines += [f"### {title}", "", *_prose(text or ""), ""]
    lines += ["### Settings that methods share", ""]
    for model, title in _SHARED:
        lines += [f"**{title}.** {first_line(model.__doc__)}", "", *_settings(model), ""]
    lines += ["### Reward shaping: `rl.shaping`", ""]
    for model, text in _SHAPING:
        name = model.model_fields["name"].default
        lines += [f"**{name}.** {first_line(model.__doc__)}", "", *_prose(text or ""), "", *_settings(model), ""]
    return lines


def _prose(docstring: str) -> list[str]:
    """A docstring up to its doctest, as a block of text."""
    text: list[str] = []
    for line in docstring.strip().splitlines():
        if line.strip().startswith(">>>"):
            break
        text.append(line.removeprefix("    "))
    return ["```text", *"\n".join(text).rstrip().splitlines(), "```"]


def _settings(model: type[BaseModel]) -> list[str]:
    rows = []
    for key in model.__annotations__:
        field = model.model_fields.get(key)
        if field is None or key == "name" or isinstance(field.default, BaseModel):
            continue
        value = "required" if field.is_required() else f"`{_value(field.default)}`"
        rows.append((f"`{key}`", value, field.description or ""))
    return _table(("setting", "default", "meaning (origin)"), rows)


def _value(value: object) -> str:
    """A value as YAML writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def main(argv: Sequence[str] | None = None) -> int:
    """Write both pages, or check them."""
    parser = argparse.ArgumentParser(description="docs/paper.md and docs/algorithms.md, from the code")
    parser.add_argument("docs", type=Path, nargs="?", default=Path("docs"))
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where a page is stale")
    options = parser.parse_args(argv)
    stale = []
    for name, text in (("paper.md", paper_page()), ("algorithms.md", algorithms_page())):
        path = options.docs / name
        if options.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(str(path))
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"{', '.join(stale)}: stale. Run python -m algorist.objective.document\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
