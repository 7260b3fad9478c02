"""Methods on equal terms: one start per seed, the same problems in the same order, the same number of sampled responses."""

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from algorist.digest import JSON, canonical, sha256
from algorist.errors import AdmissionRefused, AlgoristError, GateFailed, InputError
from algorist.evaluate.config import EvaluateConfig
from algorist.evaluate.result import EvaluationResult
from algorist.launch.coefficients import side_by_side, unshaped
from algorist.launch.prepare import prepare
from algorist.launch.run import Never, resume, run
from algorist.objective.registry import METHODS
from algorist.policy.config import PolicyConfig
from algorist.recipe.load import Resolved, load, to_json
from algorist.recipe.model import Recipe
from algorist.record import metrics
from algorist.record.commit import atomic_write
from algorist.record.ledger import EventKind, counts, read
from algorist.record.rollouts import batch_path
from algorist.record.rollouts import read as read_batch
from algorist.record.run_folder import RunFolder
from algorist.report.comparison import render
from algorist.report.comparison_data import Comparison, GroupCoefficients, MethodRun, table
from algorist.stages.config import RLConfig
from algorist.stages.listener import Listener

SCHEMA = "algorist/compare/1"
START = "start"
"""Folder, beside those of the methods, of the run that makes a seed's shared start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A method as it takes part: its own name, or a label with settings of its own.

    >>> Variant.parse("iterative=grpo rl.reference.reset_every=10")
    Variant(label='iterative', method='grpo', settings=('rl.reference.reset_every=10',))
    """

    label: str
    method: str
    settings: tuple[str, ...] = ()
    """Texts like "rl.objective.beta=0.1", applied after all others."""

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """A method's name, or LABEL=METHOD with settings after spaces, quoted as in a shell. Raises InputError."""
        label, sign, rest = text.partition("=")
        try:
            words = shlex.split(rest) if sign else [label]
        except ValueError as error:
            raise InputError(f"a variant's settings are quoted as in a shell: got {text!r} ({error}).") from error
        if not words or not label or words[0] not in METHODS:
            raise InputError(
                f"a method must be one of {', '.join(METHODS)}, or LABEL=METHOD [key=value ...]: got {text!r}."
            )
        return cls(label=label.strip(), method=words[0].strip(), settings=tuple(words[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a comparison wrote."""

    page: Path
    data: Path
    comparison: Comparison
    document: Mapping[str, JSON]
    """The object of `compare.json`."""


def compare(
    recipe: Path,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    out: Path,
    *,
    listener: Listener,
    overrides: Sequence[str] = (),
    plugin: str | None = None,
    stop_requested: Callable[[], bool] = Never,
) -> Compared:
    """Run every method under every seed and write out/compare.html and out/compare.json.

    Supervised fine-tuning is done once a seed; every method begins with that export. Finished runs are not repeated and stopped
    ones go on, so the same call continues an interrupted comparison. A run whose gate fails is a result: it is shown as failed.
    Raises InputError where labels repeat or budgets differ.
    """
    _check(variants, seeds)
    plans = {(v.label, seed): _resolve(recipe, v, seed, overrides) for seed in seeds for v in variants}
    budget = _budget({key: _rl(plan) for key, plan in plans.items()})
    _claim(out, recipe, variants, overrides)
    runs: list[MethodRun] = []
    for seed in seeds:
        start = _start(recipe, seed, overrides, out, listener=listener, plugin=plugin, stop_requested=stop_requested)
        for variant in variants:
            listener.say(f"seed {seed}, {variant.label}")
            plan = plans[variant.label, seed]
            resolved = plan if start is None else _from_start(plan, start)
            folder = out / f"seed-{seed}" / variant.label
            failed = _advance(resolved, folder, listener=listener, plugin=plugin, stop_requested=stop_requested)
            runs.append(_collect(variant.label, seed, folder, out, failed))
        _same_start([r for r in runs if r.seed == seed])
    cfgs = {v.label: _rl(plans[v.label, seeds[0]]) for v in variants}
    comparison = Comparison(
        name=next(iter(plans.values())).recipe.name,
        labels=tuple(v.label for v in variants),
        seeds=tuple(seeds),
        budget=budget,
        formulas={label: dict(METHODS[c.objective.name].formula(c.objective)) for label, c in cfgs.items()},
        settings={v.label: [f"method={v.method}", *v.settings] for v in variants},
        runs=tuple(runs),
        coefficients=_coefficients(cfgs, runs, out, plugin, listener),
    )
    document = _document(comparison, overrides)
    atomic_write(out / "compare.json", canonical(document))
    atomic_write(out / "compare.html", render(comparison).encode())
    return Compared(page=out / "compare.html", data=out / "compare.json", comparison=comparison, document=document)


# -- one run --------------------------------------------------------------------------------------------------------


def _resolve(recipe: Path, variant: Variant, seed: int, overrides: Sequence[str]) -> Resolved:
    """The recipe's RL stage with this method; the recipe's own objective keeps its settings where it is that method."""
    shared = [*overrides, f"seed={seed}"]
    base = load(recipe, shared, only="rl")
    if base.recipe.rl is not None and base.recipe.rl.objective.name != variant.method:
        example = {"name": variant.method, **METHODS[variant.method].example}
        shared.append(f"rl.objective={json.dumps(example)}")
    return load(recipe, [*shared, *variant.settings], only="rl")


def _start(
    recipe: Path,
    seed: int,
    overrides: Sequence[str],
    out: Path,
    *,
    listener: Listener,
    plugin: str | None,
    stop_requested: Callable[[], bool],
) -> Path | None:
    """The model folder all methods of a seed begin with; None where the recipe has no sft, so that its policy is the start."""
    whole = load(recipe, [*overrides, f"seed={seed}"])
    if whole.recipe.sft is None:
        return None
    only = load(recipe, [*overrides, f"seed={seed}"], only="sft")
    least = EvaluateConfig(
        problems=1, samples=1, ks=(1,), greedy=False, response_tokens=only.recipe.evaluate.response_tokens
    )
    quick = _with(
        only, only.recipe.model_copy(update={"evaluate": least})
    )  # the methods measure the start, as `before`
    folder = out / f"seed-{seed}" / START
    listener.say(f"seed {seed}, supervised fine-tuning, shared by all methods")
    failed = _advance(quick, folder, listener=listener, plugin=plugin, stop_requested=stop_requested)
    if failed:
        raise GateFailed(
            f"seed {seed}: supervised fine-tuning did not finish, so there is nothing to compare: {failed}"
        )
    return RunFolder(root=folder).export


def _from_start(plan: Resolved, start: Path) -> Resolved:
    """The plan with the shared start as its policy."""
    policy = plan.recipe.policy
    path = os.path.relpath(start.resolve(), plan.base_dir.resolve())
    given = PolicyConfig(path=path, dtype=policy.dtype, device=policy.device, context=policy.context)
    return _with(plan, plan.recipe.model_copy(update={"policy": given}))


def _advance(
    resolved: Resolved,
    folder: Path,
    *,
    listener: Listener,
    plugin: str | None,
    stop_requested: Callable[[], bool],
) -> str:
    """Bring one run to its end, from wherever it stands; returns why it failed, or ''."""
    ledger = RunFolder(root=folder).ledger
    begun = ledger.is_file() and ledger.stat().st_size > 0
    if begun:
        events = read(ledger)
        last = events[-1]
        if last.kind is EventKind.CLOSED:
            return ""
        if last.kind is EventKind.REFUSED or (last.kind is EventKind.GATE and not last.payload.get("passed", True)):
            return str(last.payload.get("message", last.payload.get("cause", "")))
    elif folder.exists():
        shutil.rmtree(folder)  # stopped before its first event: nothing was promised yet
    try:
        if begun:
            resume(folder, listener=listener, stop_requested=stop_requested)
        else:
            run(resolved, folder, listener=listener, plugin=plugin, stop_requested=stop_requested)
    except (GateFailed, AdmissionRefused) as error:
        listener.say(f"did not finish: {error}")
        return str(error)
    return ""


def _collect(label: str, seed: int, root: Path, out: Path, failed: str) -> MethodRun:
    """What a run's folder says."""
    folder = RunFolder(root=root)
    results = {
        path.stem: EvaluationResult.read(path) for path in sorted(folder.evaluations.glob("*.json")) if path.is_file()
    }
    events = read(folder.ledger)
    rows = [row for row in metrics.read(folder.metrics) if row["stage"] == "rl"] if folder.metrics.is_file() else []
    batches = [e for e in events if e.kind is EventKind.ROLLOUT_BATCH]
    totals = counts(events)
    during = {int(n.removeprefix("step-")): r for n, r in results.items() if n.startswith("step-")}
    return MethodRun(
        label=label,
        seed=seed,
        folder=root.relative_to(out).as_posix(),
        before=results.get("before"),
        after=None if failed else results.get("after"),
        during=tuple(sorted(during.items())),
        rows=rows,
        rollouts=sum(_count(e.payload["rollouts"]) for e in batches),
        tokens=sum(_count(e.payload["tokens"]) for e in batches),
        applied=totals.updates_applied,
        skipped=totals.updates_skipped,
        train_s=sum(float(row.get(f"time/{part}_s") or 0.0) for row in rows for part in ("rollout", "verify", "train")),
        failed=failed,
    )


# -- equal terms ----------------------------------------------------------------------------------------------------


def _check(variants: Sequence[Variant], seeds: Sequence[int]) -> None:
    labels = [v.label for v in variants]
    for what, given in (("methods", labels), ("seeds", [str(s) for s in seeds])):
        if not given:
            raise InputError(f"compare needs at least one of --{what}: got none.")
        if twice := sorted({x for x in given if given.count(x) > 1}):
            raise InputError(f"compare: --{what} must differ: got {twice[0]} twice. Give a variant a label of its own.")
    strange = [x for x in labels if x == START or not x.replace("_", "").replace("-", "").replace(".", "").isalnum()]
    if strange:
        raise InputError(
            f"compare: a label is a folder name of letters, digits, -, _ and not {START!r}: got {strange[0]!r}."
        )


def _budget(cfgs: Mapping[tuple[str, int], RLConfig]) -> dict[str, int]:
    """What every run is given. Raises InputError where two runs would not be given the same."""
    budgets = {
        key: {
            "batches": cfg.updates,
            "problems_per_batch": cfg.prompts_per_batch,
            "responses_per_problem": cfg.group_size,
            "responses": cfg.updates * cfg.prompts_per_batch * cfg.group_size,
            "response_tokens_at_most": cfg.sampling.response_tokens,
        }
        for key, cfg in cfgs.items()
    }
    (first, budget), *others = budgets.items()
    for key, other in others:
        for name, value in other.items():
            if value != budget[name]:
                raise InputError(
                    f"compare: all methods must be given the same budget: {name} is {budget[name]} for {first[0]} and {value} for "
                    f"{key[0]}. Take the setting out of the variant, or set it for all with --set."
                )
    return budget


def _same_start(runs: Sequence[MethodRun]) -> None:
    """Every method of a seed began with the same weights: their first evaluations name one digest."""
    digests = {run.before.policy_digest for run in runs if run.before is not None}
    if len(digests) > 1:
        raise AlgoristError(f"compare: the methods of seed {runs[0].seed} did not begin with the same weights.")


def _claim(out: Path, recipe: Path, variants: Sequence[Variant], overrides: Sequence[str]) -> None:
    """A folder belongs to one recipe and one set of overrides; methods and seeds may be added later."""
    mark = out / "comparison.json"
    base = to_json(load(recipe, overrides).recipe)
    mine: dict[str, JSON] = {"recipe": sha256(canonical(base)), "variants": {v.label: _said(v) for v in variants}}
    if mark.is_file():
        kept = json.loads(mark.read_bytes())
        if kept["recipe"] != mine["recipe"]:
            raise InputError(
                f"{out}: holds a comparison of another recipe or with other settings. Choose another --out."
            )
        for label, said in kept["variants"].items():
            if mine["variants"].setdefault(label, said) != said:  # type: ignore[union-attr]
                raise InputError(f"{out}: already holds {label} with other settings ({said}). Choose another label.")
    elif out.is_dir() and any(out.iterdir()):
        raise InputError(
            f"{out}: must be a new or an empty folder, or one of an earlier comparison. Choose another --out."
        )
    out.mkdir(parents=True, exist_ok=True)
    atomic_write(mark, canonical(mine))


def _said(variant: Variant) -> str:
    return " ".join([variant.method, *variant.settings])


# -- results --------------------------------------------------------------------------------------------------------


def _coefficients(
    cfgs: Mapping[str, RLConfig], runs: Sequence[MethodRun], out: Path, plugin: str | None, listener: Listener
) -> tuple[GroupCoefficients, ...]:
    """Of the first stored batch that was sampled by the start itself; every method that samples has the same one."""
    sampled = [r for r in runs if cfgs[r.label].source != "dataset" and r.rollouts]
    if not sampled:
        return ()
    chosen = sampled[0]
    folder = RunFolder(root=out / chosen.folder)
    batch = read_batch(batch_path(folder.rollouts, 0)).batch
    from algorist.launch.run import read_run

    _, recipe, base, _ = read_run(folder)
    prepared = prepare(recipe, base=base, plugin=plugin, listener=listener)
    prepared.close()
    decode = partial(prepared.policy.tokenizer.decode, skip_special_tokens=True)
    plain = unshaped(batch, [cfg.name for cfg in cfgs[chosen.label].shaping])
    return side_by_side(plain, cfgs, prepared.task.by_id, decode, stop_ids=prepared.task.stop_ids)


def _document(comparison: Comparison, overrides: Sequence[str]) -> dict[str, JSON]:
    runs: list[JSON] = [
        {
            "label": r.label,
            "seed": r.seed,
            "folder": r.folder,
            "rollouts": r.rollouts,
            "tokens": r.tokens,
            "updates_applied": r.applied,
            "updates_skipped": r.skipped,
            "train_s": round(r.train_s, 1),
            "failed": r.failed,
            "before": _short(r.before),
            "after": _short(r.after),
            "rewards": [row.get("reward/mean") for row in r.rows],
        }
        for r in comparison.runs
    ]
    groups: list[JSON] = [
        {
            "question": g.question,
            "gold": g.gold,
            "responses": [
                {
                    "text": c.text,
                    "verdict": c.verdict,
                    "reward": c.reward,
                    "coefficients": {label: [list(s) for s in stretches] for label, stretches in c.by_label.items()},
                }
                for c in g.responses
            ],
        }
        for g in comparison.coefficients
    ]
    return {
        "schema": SCHEMA,
        "recipe": comparison.name,
        "overrides": list(overrides),
        "methods": {label: list(s) for label, s in comparison.settings.items()},
        "seeds": list(comparison.seeds),
        "budget": dict(comparison.budget),
        "interval": "Student's t over seeds" if len(comparison.seeds) > 1 else "over problems",
        "confidence": comparison.confidence,
        "table": table(comparison),
        "runs": runs,
        "formulas": {label: dict(f) for label, f in comparison.formulas.items()},
        "coefficients": groups,
    }


def _count(value: JSON) -> int:
    assert isinstance(value, int), f"the ledger counts in whole numbers, got {value!r}"
    return value


def _short(result: EvaluationResult | None) -> JSON:
    return None if result is None else {k: v for k, v in result.to_json().items() if k != "per_problem"}


def _rl(plan: Resolved) -> RLConfig:
    assert plan.recipe.rl is not None, "loaded with only=rl"
    return plan.recipe.rl


def _with(plan: Resolved, recipe: Recipe) -> Resolved:
    document = canonical(to_json(recipe))
    return replace(plan, recipe=recipe, canonical_json=document, digest=sha256(document))
