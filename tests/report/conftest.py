"""A run folder as a real run would leave it, written with the record's own code from a simulated policy."""

import json
import math
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from algorist.digest import digest
from algorist.evaluate.result import EvaluationResult, record_of, summarise
from algorist.flow import Batch, Finish, Group, Outcome, Problem, Reward, Rollout, Verdict
from algorist.record import rollouts
from algorist.record.ledger import EventKind, Ledger
from algorist.record.metrics import Metrics
from algorist.record.run_folder import RunFolder
from algorist.seeds import derive, generator

BATCHES, P, G = 48, 6, 8
OWN = "document.title='owned'"
HOSTILE = f'</script></pre><img src=x onerror="{OWN}"><script>{OWN}</script>\u202e\x07 {{{{7*7}}}}'
RECIPE = {
    "name": "arithmetic-demo",
    "description": "A small model learns to calculate.",
    "seed": 0,
    "policy": {"new": {"hidden_size": 128, "num_layers": 3, "context": 128, "tokenizer": {"kind": "char"}}},
    "problems": {"source": [{"kind": "arithmetic", "families": ["add", "subtract", "multiply"]}]},
    "sft": {"steps": 120, "batch_size": 32, "optimizer": {"lr": 1e-3}},
    "rl": {
        "updates": BATCHES,
        "prompts_per_batch": P,
        "group_size": G,
        "sampling": {"temperature": 1.0, "response_tokens": 48},
        "objective": {"name": "rloo"},
    },
    "evaluate": {"samples": 16, "ks": [1, 2, 4, 8, 16]},
}
FORMULAS = {
    "estimator": "A_i = r_i - mean of the other rewards of the group",
    "std": "no division",
    "errors": "rows without a reward leave their group before the baseline and get exactly 0",
    "reduction": "prompt-group token mean: 1 / (P sum_{j in group} |o_j|)",
    "kl": "none",
    "flat_batch": "optimizer, moments and schedule stay bit for bit what they were",
}


def problem(rng: np.random.Generator) -> tuple[Problem, float]:
    kind = int(rng.integers(3))
    a, b = int(rng.integers(2, 10 ** (1 + kind % 2 + 1))), int(rng.integers(2, 99))
    sign, value = (("+", a + b), ("-", a - b), ("*", a * b))[kind]
    question = f"What is {a} {sign} {b}?"
    id_ = digest([question])[:16]
    return Problem(id=id_, question=question, gold=str(value), source="arithmetic", family=sign), (-0.6, 0.0, 1.4)[kind]


def chance(batch: float, hardness: float) -> float:
    return 1 / (1 + math.exp(hardness + 2.2 - 4.4 * (1 - math.exp(-batch / 18))))


def respond(rng: np.random.Generator, task: Problem, p: float, budget: int = 48) -> tuple[str, Finish, Verdict]:
    right = bool(rng.random() < p)
    value = task.gold if right else str(int(task.gold) + int(rng.integers(1, 12)))
    work = f"{task.question.removeprefix('What is ').removesuffix('?')}\n= {value}\nThe answer is \\boxed{{{value}}}."
    roll = rng.random()
    if roll < 0.05 * (1.4 - p):
        unsupported = Verdict(verdict=Outcome.UNSUPPORTED, reason="truncated")
        return work[: len(work) // 2], Finish.LENGTH, unsupported
    if roll < 0.09 * (1.4 - p):
        return (
            f"It is {value}",
            Finish.STOP,
            Verdict(verdict=Outcome.UNSUPPORTED, reason="no_answer", raw_correct=right),
        )
    if roll > 0.998:
        return work, Finish.STOP, Verdict(verdict=Outcome.ERROR, reason="timeout")
    kind = Outcome.CORRECT if right else Outcome.WRONG
    reason = "equal" if right else "different"
    return (
        work,
        Finish.STOP,
        Verdict(verdict=kind, reason=reason, rule="boxed", method="rational", extracted=value, raw_correct=right),
    )


def make_group(rng: np.random.Generator, batch: int, version: int, hostile: bool) -> tuple[Group, Problem]:
    task, hardness = problem(rng)
    rows, verdicts, rewards = [], [], []
    for g in range(G):
        text, finish, verdict = respond(rng, task, chance(batch, hardness))
        if hostile and g == 0:
            text = HOSTILE
        ids = tuple(text.encode("utf-8"))[:48]
        T = len(ids)
        rows.append(
            Rollout(
                problem_id=task.id,
                sample=g,
                prompt_ids=tuple(task.question.encode()),
                token_ids=ids,
                behaviour_logp=tuple(float(np.float32(-abs(x))) for x in rng.normal(0, 0.4, T)),
                policy_version=(version,) * T,
                loss_mask=(True,) * T,
                finish=finish,
                text=text,
                seed=derive(0, "rollout", version, task.id, g),
            )
        )
        verdicts.append(verdict)
        failed = verdict.verdict is Outcome.ERROR
        value = 1.0 if verdict.verdict is Outcome.CORRECT else 0.0
        rewards.append(
            Reward(value=None, error="verifier: timeout") if failed else Reward(value=value, parts={"correct": value})
        )
    return Group(problem_id=task.id, rollouts=tuple(rows), verdicts=tuple(verdicts), rewards=tuple(rewards)), task


def credit(group: Group) -> list[float | None]:
    """RLOO: the reward minus the mean of the others."""
    values = group.values
    return [
        None if r.value is None else r.value - (sum(values) - r.value) / max(1, len(values) - 1) for r in group.rewards
    ]


def evaluation(name: str, batch: float, samples: int = 16) -> EvaluationResult:
    records = []
    rng = generator(7, "heldout")
    for i in range(128):
        task, hardness = problem(rng)
        own = generator(7, name, i)
        p = chance(batch, hardness + float(own.normal(0, 0.7)))
        greedy = respond(own, task, 1.0 if p > 0.5 else 0.05)
        drawn = [respond(own, task, p) for _ in range(samples)]
        cut = sum(r[1] is Finish.LENGTH for r in [greedy, *drawn])
        records.append(record_of(f"{i}-{task.id}", greedy=greedy[2], samples=[r[2] for r in drawn], truncated=cut))
    return summarise(name, policy_digest=digest([name]), records=records, ks=[1, 2, 4, 8, 16])


def row_of(batch: Batch, advantages: list[list[float | None]], applied: bool) -> dict[str, float | int | str | None]:
    rewards = [r.value for g in batch.groups for r in g.rewards if r.value is not None]
    verdicts = [v for g in batch.groups for v in g.verdicts]
    lengths = [len(r.token_ids) for g in batch.groups for r in g.rollouts]
    mixed = sum(not g.flat for g in batch.groups)
    right = sum(g.flat and g.values[0] > 0 for g in batch.groups)
    flat = [a for row in advantages for a in row if a is not None]
    b = batch.index
    rng = generator(3, b)
    return {
        "stage": "rl",
        "step": b,
        "batch": b,
        "reward/mean": mean(rewards),
        "reward/raw_correct_mean": mean(bool(v.raw_correct) for v in verdicts),
        "groups/all_right": right,
        "groups/mixed": mixed,
        "groups/all_wrong": P - mixed - right,
        "groups/excluded_rows": sum(v.verdict is Outcome.ERROR for v in verdicts),
        "response/tokens_mean": mean(lengths),
        "response/tokens_max": max(lengths),
        "response/truncated_share": mean(r.truncated for g in batch.groups for r in g.rollouts),
        "verdict/unsupported_share": mean(v.verdict is Outcome.UNSUPPORTED for v in verdicts),
        "verdict/error_share": mean(v.verdict is Outcome.ERROR for v in verdicts),
        "policy/entropy_nats": 0.62 * math.exp(-b / 30) + 0.08 + 0.01 * float(rng.normal()),
        "advantage/positive_mass": sum(a for a in flat if a > 0),
        "advantage/negative_mass": sum(a for a in flat if a < 0),
        "loss": 0.02 * float(rng.normal()) if applied else math.nan,
        "grad_norm": abs(float(rng.normal(0.9, 0.25))) * math.exp(-b / 60) if applied else None,
        "lr": 2e-4 * (1 - b / BATCHES),
        "replay/mean_nats": 4e-7 * abs(float(rng.normal(1, 0.2))) if b % 10 == 0 else None,
        "replay/p99_nats": 2e-6 if b % 10 == 0 else None,
        "replay/max_nats": 7e-6 if b % 10 == 0 else None,
        "tokens/trained": sum(lengths) * mixed // P,
        "tokens/sampled": sum(lengths),
        "time/rollout_s": 0.9 + 0.1 * float(rng.random()),
        "time/verify_s": 0.05,
        "time/train_s": 0.7 if applied else 0.1,
        "heldout/greedy": float(np.clip(chance(b, 0.25) + 0.02 * rng.normal(), 0, 1)) if b % 8 == 0 else None,
    }


def _evaluate(run: RunFolder, ledger: Ledger, name: str, batch: float, version: int) -> None:
    result = evaluation(name, batch)
    result.write(run.evaluation(name))
    greedy = result.greedy.value if result.greedy else None
    ledger.append(
        EventKind.EVALUATION_COMPLETED,
        policy_version=version,
        payload={"name": name, "greedy": greedy, "problems": 128},
    )


def make_run(root: Path) -> Path:
    run = RunFolder.create(root)
    contract = {
        "recipe": RECIPE,
        "formulas": {"rl": FORMULAS},
        "hardware": {"cores": 2, "memory_gib": 7.7},
        "policy": {"parameters": 612_352, "device": "cpu", "dtype": "float32"},
        "notes": ["problems read: 4,500; for RL: 4,096, for SFT: 276, held out: 128, unused: 0, dropped: 0"],
    }
    run.contract.write_text(json.dumps(contract))
    version = 0
    with Ledger.open(run.ledger, contract=digest(contract)) as ledger, Metrics(run.metrics) as metrics:
        ledger.append(EventKind.CONTRACT, policy_version=0, payload={"name": RECIPE["name"]})
        ledger.append(EventKind.GATE, policy_version=0, payload={"gate": "data", "verdict": "passed", "problems": 4096})
        for step in range(120):
            ledger.append(EventKind.UPDATE_APPLIED, policy_version=step + 1, payload={"stage": "sft", "step": step})
            metrics.append({"stage": "sft", "step": step, "sft/loss": 2.4 * math.exp(-step / 30) + 0.5, "sft/lr": 1e-3})
        _evaluate(run, ledger, "before", 3, 0)
        for b in range(BATCHES):
            pairs = [make_group(generator(1, b, p), b, version, hostile=(b, p) == (BATCHES - 1, 0)) for p in range(P)]
            batch = Batch(index=b, policy_version=version, groups=tuple(g for g, _ in pairs))
            advantages = [credit(group) for group in batch.groups]
            problems = {task.id: task for _, task in pairs}
            rollouts.write(rollouts.batch_path(run.rollouts, b), batch, advantages, problems=problems)
            ledger.append(EventKind.ROLLOUT_BATCH, policy_version=version, payload={"batch": b, "rollouts": P * G})
            cause = "flat" if all(g.flat for g in batch.groups) else "nonfinite_gradient" if b in (11, 30) else ""
            version += not cause
            kind = EventKind.UPDATE_SKIPPED if cause else EventKind.UPDATE_APPLIED
            ledger.append(
                kind, policy_version=version, payload={"stage": "rl", "batch": b, **({"cause": cause} if cause else {})}
            )
            metrics.append(row_of(batch, advantages, applied=not cause))
        _evaluate(run, ledger, "after", BATCHES, version)
        ledger.append(EventKind.CLOSED, policy_version=version)
    return run.root


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run folder; not to be changed."""
    return make_run(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture
def small_run(tmp_path: Path) -> RunFolder:
    """A folder with a contract event and nothing else."""
    run = RunFolder.create(tmp_path / "small")
    with Ledger.open(run.ledger, contract="c" * 64) as ledger:
        ledger.append(EventKind.CONTRACT, policy_version=0)
    return run
