"""Deliberate faults, each with the gate that must catch it: shared by bench_faults.py and tests/qualify.

A fault either changes the recipe, or tampers with a prepared run (sampler, verifier, reward, data, weights) behind its back.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from algorist.errors import AlgoristError
from algorist.flow import Finish, Outcome, Problem, Prompt, Reward, Rollout, Verdict
from algorist.launch.prepare import Prepared, prepare
from algorist.launch.run import run, run_prepared
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.qualify.naive import Variant, token_logp
from algorist.recipe.load import load
from algorist.record.ledger import EventKind, counts, read
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.stages.listener import Silent

START = """
name: fault-start
policy: {new: {hidden_size: 32, intermediate_size: 64, num_layers: 2, num_heads: 4, context: 32}}
problems:
  source: {kind: arithmetic, families: [{name: add, digits: [1, 1]}]}
  heldout: {count: 12}
  sft_count: 60
prompt: {format: "{question}=", target: "{answer}", answer_format: first_line}
sft: {steps: 60, batch_size: 16, target: gold, optimizer: {lr: 1.0e-2}}
evaluate: {problems: 1, samples: 1, ks: [1], greedy: false, bootstrap: 100, response_tokens: 4}
"""
RECIPE = """
name: fault
policy: {path: start}
problems:
  source: {kind: arithmetic, families: [{name: add, digits: [1, 1]}]}
  heldout: {count: 12}
prompt: {format: "{question}=", target: "{answer}", answer_format: first_line}
rl:
  updates: 4
  prompts_per_batch: 12
  group_size: 6
  sampling: {temperature: 0.8, response_tokens: 4}
  objective: {name: rloo}
  optimizer: {lr: 2.0e-3}
  replay: {every: 1}
evaluate: {problems: 4, samples: 2, ks: [1], greedy: false, bootstrap: 100}
record: {checkpoint_every: 2}
"""


@dataclass(frozen=True)
class Fault:
    """One injected fault."""

    name: str
    source: str
    """Where it was seen: a line of facts/pain.md, a public thread, a seed."""
    gates: tuple[str, ...]
    """Gates that may catch it."""
    words: str = ""
    """What the message must name."""
    code: int = 4
    overrides: tuple[str, ...] = ()
    tamper: Callable[[Prepared], Prepared] | None = None
    updates: int = 0
    """Updates that may have been applied before it is caught: those before it happens."""


@dataclass(frozen=True)
class Caught:
    """What became of a run with a fault in it."""

    gate: str
    code: int
    message: str
    applied: int


def start_policy(folder: Path) -> Path:
    """A folder with a recipe and a policy that solves some problems, to inject faults into."""
    (folder / "start.yaml").write_text(START)
    (folder / "recipe.yaml").write_text(RECIPE)
    finished = run(load(folder / "start.yaml"), folder / "start-run", listener=Silent())
    (folder / "start").symlink_to(finished.export)
    return folder / "recipe.yaml"


def inject(fault: Fault, recipe: Path, out: Path) -> Caught:
    """Run with the fault in it and say who noticed."""
    code, message = 0, "nobody noticed"
    try:
        resolved = load(recipe, list(fault.overrides))
        prepared = prepare(resolved.recipe, base=resolved.base_dir, listener=Silent())
        try:
            prepared = fault.tamper(prepared) if fault.tamper else prepared
            run_prepared(prepared, out, listener=Silent())
        finally:
            prepared.close()
    except AlgoristError as error:
        code, message = error.exit_code, str(error)
    if not (out / "ledger.jsonl").is_file():
        return Caught(gate="recipe", code=code, message=message, applied=0)
    events = read(out / "ledger.jsonl")
    gate = ""
    for event in events:
        if event.kind is EventKind.REPLAY_CHECK and not event.payload["passed"]:
            gate = "replay"
        elif event.kind in (EventKind.GATE, EventKind.ADMISSION) and event.payload.get("passed") is False:
            gate = gate or str(event.payload.get("name"))
    return Caught(gate=gate, code=code, message=message, applied=counts(events).updates_applied)


# -- sampler --------------------------------------------------------------------------------------------------------


@dataclass
class Tampered:
    """An engine that does something wrong in training batches (everywhere, with `always`)."""

    inner: object
    change: Callable[[Rollout], Rollout] = lambda r: r
    plan: Callable[[SamplingPlan], SamplingPlan] = lambda p: p
    prompts: Callable[[Sequence[Prompt]], Sequence[Prompt]] = lambda p: p
    always: bool = False
    from_version: int = 0

    def generate(self, prompts, *, num_samples, plan, policy_version, seed, salt=""):
        active = self.always or (salt.startswith("batch") and policy_version >= self.from_version)
        asked = self.prompts(prompts) if active else prompts
        used = self.plan(plan) if active else plan
        groups = self.inner.generate(
            asked, num_samples=num_samples, plan=used, policy_version=policy_version, seed=seed, salt=salt
        )
        if not active:
            return groups
        by_id = {p.problem_id: p.token_ids for p in prompts}
        if asked is not prompts:  # the stored prompt is the one that was asked for, not the one that was used
            groups = [[replace(r, prompt_ids=by_id[r.problem_id]) for r in group] for group in groups]
        return [[self.change(r) for r in group] for group in groups]


def engine(**kwargs: object) -> Callable[[Prepared], Prepared]:
    """Tamper with the engine."""

    def tamper(prepared: Prepared) -> Prepared:
        change = kwargs.get("change")
        made = {**kwargs, "change": (lambda r: change(prepared, r))} if change else kwargs
        return replace(prepared, engine=Tampered(prepared.engine, **made))

    return tamper


def rescored(**variant: object) -> Callable[[Prepared, Rollout], Rollout]:
    """The stored log-probabilities are those of another distribution."""

    def change(prepared: Prepared, r: Rollout) -> Rollout:
        values = token_logp(prepared.policy, r.prompt_ids, r.token_ids, Variant(**{"temperature": 0.8, **variant}))
        return replace(r, behaviour_logp=tuple(values.tolist()))

    return change


def shifted(prepared: Prepared, r: Rollout) -> Rollout:
    return replace(r, behaviour_logp=(*r.behaviour_logp[1:], r.behaviour_logp[0]))


def shifted_back(prepared: Prepared, r: Rollout) -> Rollout:
    return replace(r, behaviour_logp=(r.behaviour_logp[-1], *r.behaviour_logp[:-1]))


def other_token(prepared: Prepared, r: Rollout) -> Rollout:
    """One token in the middle is another one, and the text is made to fit: what encoding the text again does."""
    if len(r.token_ids) < 2 or r.sample % 2:
        return r
    new = 4 + (r.token_ids[-2] - 3) % 8
    ids = (*r.token_ids[:-2], new, r.token_ids[-1])
    keep = [t for t in ids if t not in prepared.task.stop_ids]
    return replace(r, token_ids=ids, text=prepared.policy.tokenizer.decode(keep, skip_special_tokens=True))


def other_weights(noise: float) -> Callable[[Prepared], Prepared]:
    """The sampler serves a swapped adapter: other weights of the same shape, stamped as the present ones."""

    def tamper(prepared: Prepared) -> Prepared:
        policy = copy_policy(prepared.policy)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.add_(noise * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        return replace(prepared, engine=Switched(prepared.engine, LocalEngine(policy)))

    return tamper


@dataclass
class Switched:
    """One engine for gates and evaluation, another one for training batches."""

    gates: object
    training: object

    def generate(self, prompts, **kwargs):
        chosen = self.training if kwargs.get("salt", "").startswith("batch") else self.gates
        return chosen.generate(prompts, **kwargs)


def stale(prepared: Prepared) -> Prepared:
    """The sampler never gets an update; stamps say it does."""
    return replace(prepared, engine=Switched(prepared.engine, LocalEngine(copy_policy(prepared.policy))))


def prefixed(*ids: int) -> Callable[[Sequence[Prompt]], Sequence[Prompt]]:
    return lambda prompts: [replace(p, token_ids=(*ids, *p.token_ids)) for p in prompts]


def without_last(prompts: Sequence[Prompt]) -> Sequence[Prompt]:
    return [replace(p, token_ids=p.token_ids[:-1]) for p in prompts]


# -- verifier, reward, data, weights -----------------------------------------------------------------------------------


@dataclass
class Judge:
    """A verifier with a fault."""

    inner: object
    change: Callable[[Verdict, str], Verdict]

    def check_many(self, items):
        return [self.change(v, i.response) for v, i in zip(self.inner.check_many(items), items, strict=True)]

    def close(self) -> None:
        self.inner.close()


def verifier(change: Callable[[Verdict, str], Verdict]) -> Callable[[Prepared], Prepared]:
    return lambda p: replace(p, task=replace(p.task, verifier=Judge(p.task.verifier, change)))


def says(outcome: Outcome, reason: str = "x") -> Callable[[Verdict, str], Verdict]:
    return lambda v, text: replace(v, verdict=outcome, reason=reason)


def reward(function: Callable[[Problem, Rollout, Verdict], float | Reward]) -> Callable[[Prepared], Prepared]:
    return lambda p: replace(p, task=replace(p.task, reward=function))


def data(**parts: Callable[[Prepared], object]) -> Callable[[Prepared], Prepared]:
    def tamper(prepared: Prepared) -> Prepared:
        changed = {name: make(prepared) for name, make in parts.items()}
        problems = replace(prepared.problems, **changed)
        return replace(prepared, problems=problems)

    return tamper


def prompts_of(change: Callable[[Prompt], Prompt]) -> Callable[[Prepared], Prepared]:
    def tamper(prepared: Prepared) -> Prepared:
        prompts: Mapping[str, Prompt] = {k: change(p) for k, p in prepared.task.prompts.items()}
        return replace(prepared, task=replace(prepared.task, prompts=prompts))

    return tamper


def weights(change: Callable[[CausalPolicy], None]) -> Callable[[Prepared], Prepared]:
    def tamper(prepared: Prepared) -> Prepared:
        change(prepared.policy)
        return prepared

    return tamper


def _nan(policy: CausalPolicy) -> None:
    with torch.no_grad():
        next(policy.model.parameters()).fill_(float("nan"))


def _thaw(policy: CausalPolicy) -> None:
    for parameter in policy.model.parameters():
        parameter.requires_grad_(True)


def _fail(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    raise KeyError("answer")


def _every_second(v: Verdict, text: str) -> Verdict:
    return replace(v, verdict=Outcome.CORRECT if len(text) % 2 else v.verdict)


DECLARED = "{total_gib: 268, free_gib: 256, peak_gib: 194, tensor: activations of 16 layers}"
"""A device with 268 GiB of which 256 are free, and a trainer that needs 194 at its peak."""
_MEMORY = "qualify.memory={trainer_allocator_cap_gib: %d, driver_free_memory_gib: 64, declared: %s}"
_SEQ = dataclasses.replace

FAULTS: tuple[Fault, ...] = (
    # sampling against scoring
    Fault(
        "temperature not applied to stored log-probs",
        "C44",
        ("replay",),
        "temperature",
        tamper=engine(change=rescored(temperature=1.0)),
    ),
    Fault(
        "temperature not applied when sampling",
        "C44",
        ("replay",),
        "temperature",
        tamper=engine(plan=lambda p: _SEQ(p, temperature=1.0)),
    ),
    Fault(
        "temperature fault already in the gate's own rollouts",
        "C44",
        ("cache",),
        "temperature",
        tamper=engine(change=rescored(temperature=1.0), always=True),
    ),
    Fault(
        "top-p mask missing in the trainer",
        "C45",
        ("replay",),
        "top-p",
        tamper=engine(plan=lambda p: _SEQ(p, top_p=0.8)),
    ),
    Fault("top-p below 1 in the recipe", "C45", ("recipe",), "top_p", code=2, overrides=("rl.sampling.top_p=0.9",)),
    Fault("top-k sampling", "C45", ("replay", "rollouts"), "", tamper=engine(change=rescored(top_k=5))),
    Fault("stale weights in the sampler", "C48", ("replay",), "", tamper=stale, updates=1),
    Fault(
        "stale policy version stamps",
        "C53",
        ("rollouts",),
        "version",
        tamper=engine(change=lambda p, r: replace(r, policy_version=tuple(v - 1 for v in r.policy_version))),
    ),
    Fault("log-probs shifted to the next token", "C27", ("replay",), "shifted by one", tamper=engine(change=shifted)),
    Fault(
        "log-probs shifted to the previous token",
        "C27",
        ("replay",),
        "shifted by one",
        tamper=engine(change=shifted_back),
    ),
    Fault(
        "wrong chat template in the sampler (one more token before)",
        "C44",
        ("replay",),
        "",
        tamper=engine(prompts=prefixed(5)),
    ),
    Fault(
        "sampler drops the last prompt token", "C44", ("replay",), "another prompt", tamper=engine(prompts=without_last)
    ),
    Fault(
        "stored prompt is not the rendered one",
        "D66",
        ("rollouts",),
        "prompt",
        tamper=engine(change=lambda p, r: replace(r, prompt_ids=r.prompt_ids[:-1])),
    ),
    Fault(
        "bfloat16 head in the sampler",
        "performance",
        ("replay",),
        "bfloat16",
        tamper=engine(change=rescored(head=torch.bfloat16)),
    ),
    Fault(
        "bfloat16 sampler under a float32 contract",
        "performance",
        ("replay",),
        "bfloat16",
        tamper=engine(change=rescored(compute=torch.bfloat16)),
    ),
    Fault("swapped adapter", "issue", ("replay",), "", tamper=other_weights(0.05)),
    Fault("re-tokenised text", "C49", ("replay",), "sampled", tamper=engine(change=other_token)),
    Fault(
        "text that is not what the tokens say",
        "C49",
        ("rollouts",),
        "decode",
        tamper=engine(change=lambda p, r: replace(r, text=r.text + "1")),
    ),
    Fault(
        "log-probs missing (zeros)",
        "B36",
        ("replay",),
        "",
        tamper=engine(change=lambda p, r: replace(r, behaviour_logp=(0.0,) * len(r.token_ids))),
    ),
    Fault(
        "log-probs not finite",
        "B36",
        ("rollouts",),
        "finite",
        tamper=engine(change=lambda p, r: replace(r, behaviour_logp=(float("nan"),) * len(r.token_ids))),
    ),
    Fault(
        "probabilities stored as log-probabilities",
        "C45",
        ("rollouts",),
        "at most 0",
        tamper=engine(change=lambda p, r: replace(r, behaviour_logp=tuple(2.718281828**x for x in r.behaviour_logp))),
    ),
    Fault(
        "one random stream for a whole group",
        "A3",
        ("rollouts",),
        "random stream",
        tamper=engine(change=lambda p, r: replace(r, seed=7)),
    ),
    Fault(
        "samples numbered twice",
        "A2",
        ("rollouts",),
        "numbered",
        tamper=engine(change=lambda p, r: replace(r, sample=0)),
    ),
    # stopping and lengths
    Fault(
        "sampler does not know the stop id",
        "B24",
        ("rollouts",),
        "stop id",
        tamper=engine(plan=lambda p: _SEQ(p, stop_ids=frozenset({3}))),
    ),
    Fault(
        "finish reason guessed from the length",
        "B24",
        ("rollouts",),
        "finish",
        tamper=engine(change=lambda p, r: replace(r, finish=Finish.LENGTH)),
    ),
    Fault(
        "empty responses",
        "A10",
        ("rollouts",),
        "0 tokens",
        tamper=engine(
            change=lambda p, r: replace(r, token_ids=(), behaviour_logp=(), policy_version=(), loss_mask=(), text="")
        ),
    ),
    Fault(
        "budget too small for any answer: all truncated",
        "B20, D66",
        ("signal", "cache"),
        "cut off",
        overrides=("rl.sampling.response_tokens=1",),
    ),
    Fault(
        "engine fails on every row",
        "E84",
        ("signal",),
        "no reward",
        tamper=engine(
            change=lambda p, r: replace(
                r, finish=Finish.ERROR, token_ids=(), behaviour_logp=(), policy_version=(), loss_mask=(), text=""
            )
        ),
    ),
    # verifier and reward
    Fault(
        "verifier rejects everything", "D58", ("verifier_canary",), "misjudged", tamper=verifier(says(Outcome.WRONG))
    ),
    Fault(
        "verifier accepts everything", "D55", ("verifier_canary",), "misjudged", tamper=verifier(says(Outcome.CORRECT))
    ),
    Fault(
        "verifier fails on everything",
        "D59",
        ("verifier_canary",),
        "misjudged",
        tamper=verifier(says(Outcome.ERROR, "timeout")),
    ),
    Fault("verifier pays by length", "D61", ("verifier_canary",), "misjudged", tamper=verifier(_every_second)),
    Fault("reward is constant", "D67", ("verifier_canary",), "pays", tamper=reward(lambda p, r, v: 1.0)),
    Fault(
        "reward has the wrong sign",
        "B33",
        ("verifier_canary",),
        "pays",
        tamper=reward(lambda p, r, v: -float(v.verdict is Outcome.CORRECT)),
    ),
    Fault("reward raises", "D63", ("verifier_canary",), "no value", tamper=reward(_fail)),
    Fault(
        "reward is not a number", "D63", ("verifier_canary",), "no value", tamper=reward(lambda p, r, v: float("nan"))
    ),
    Fault(
        "answers looked for in a place where they never stand",
        "D57, D58",
        ("signal", "verifier_canary"),
        "",
        overrides=("prompt.answer_format=hashes",),
    ),
    Fault(
        "verifier dies in the middle of a run",
        "D59",
        ("watch", "signal"),
        "verifier fails",
        tamper=lambda p: replace(
            p, task=replace(p.task, verifier=Late(p.task.verifier, says(Outcome.ERROR, "timeout"), after=3))
        ),
        updates=2,
    ),
    # data
    Fault(
        "held-out problems are trained on",
        "C corpus",
        ("data",),
        "held-out",
        tamper=data(heldout=lambda p: p.problems.train[:5]),
    ),
    Fault(
        "most golds cannot be checked",
        "D62",
        ("data",),
        "golds",
        overrides=("problems.source={kind: jsonl, path: bad.jsonl}",),
    ),
    Fault(
        "problems too hard for any contrast",
        "D67, E82",
        ("signal",),
        "too hard",
        overrides=("problems.source={kind: jsonl, path: hard.jsonl}",),
    ),
    Fault(
        "most prompts do not fit",
        "E79",
        ("prompt_lengths",),
        "cannot be shown",
        overrides=("problems.source={kind: jsonl, path: long.jsonl}",),
    ),
    Fault(
        "prior-exposure list is missing",
        "seed",
        ("recipe",),
        "exclusions",
        code=2,
        overrides=("qualify.data.exclusions=[absent.txt]",),
    ),
    Fault(
        "every prompt ends with the stop token",
        "B24",
        ("template",),
        "stop token",
        tamper=prompts_of(lambda p: replace(p, token_ids=(*p.token_ids, 1))),
    ),
    Fault(
        "token ids of another tokenizer",
        "C49",
        ("template",),
        "vocabulary",
        tamper=prompts_of(lambda p: replace(p, token_ids=(*p.token_ids, 5000))),
    ),
    # weights, parents, memory
    Fault("weights are not numbers", "B20", ("cache",), "", tamper=weights(_nan)),
    Fault(
        "declared parent is another checkpoint",
        "seed",
        ("parents",),
        "weights",
        overrides=(f'qualify.parents.weights="{"0" * 64}"',),
    ),
    Fault(
        "frozen parameters would be trained",
        "seed",
        ("parameters",),
        "declared frozen",
        overrides=('qualify.parameters.frozen=["*embed_tokens*"]',),
        tamper=weights(_thaw),
    ),
    Fault(
        "pattern that freezes nothing",
        "seed",
        ("recipe",),
        "names none",
        code=2,
        overrides=('qualify.parameters.frozen=["*.router.*"]',),
    ),
    Fault(
        "190 GiB cap, 64 GiB to stay free",
        "seed",
        ("memory",),
        "its cap is 190",
        code=3,
        overrides=(_MEMORY % (190, DECLARED),),
    ),
    Fault(
        "198 GiB cap, 64 GiB to stay free",
        "seed",
        ("memory",),
        "64 GiB must stay free",
        code=3,
        overrides=(_MEMORY % (198, DECLARED),),
    ),
    Fault(
        "a cap that this machine cannot give",
        "E81",
        ("memory",),
        "must stay free",
        code=3,
        overrides=("qualify.memory={trainer_allocator_cap_gib: 4000, driver_free_memory_gib: 64}",),
    ),
    Fault(
        "a cap below what the process already holds",
        "E81",
        ("memory",),
        "its cap is",
        code=3,
        overrides=("qualify.memory={trainer_allocator_cap_gib: 0.01}",),
    ),
    # training
    Fault(
        "learning rate that destroys the policy",
        "B36",
        ("watch", "run", "replay", "counts", "rollouts"),
        "",
        overrides=("rl.optimizer.lr=1.0e6", "rl.optimizer.clip_norm=null", "rl.updates=12", "rl.max_flat_batches=5"),
        updates=12,
    ),
    Fault("group of one", "A8", ("recipe",), "baseline", code=2, overrides=("rl.group_size=1",)),
    Fault(
        "no update is ever applied",
        "E70, E74",
        ("counts", "signal"),
        "",
        overrides=("qualify.signal.action=report", "problems.source={kind: jsonl, path: hard.jsonl}"),
    ),
)


@dataclass
class Late:
    """A verifier that breaks after some batches of answers."""

    inner: object
    change: Callable[[Verdict, str], Verdict]
    after: int
    calls: int = 0

    def check_many(self, items):
        self.calls += 1
        found = self.inner.check_many(items)
        return (
            found
            if self.calls <= self.after
            else [self.change(v, i.response) for v, i in zip(found, items, strict=True)]
        )

    def close(self) -> None:
        self.inner.close()


def write_data(folder: Path) -> None:
    """Problem files with faults in them."""
    (folder / "bad.jsonl").write_text(
        "".join(
            f'{{"question": "{a % 9} + {a // 9}", "answer": "{a % 9 + a // 9 if a % 3 else "((("}"}}\n'
            for a in range(80)
        )
    )
    (folder / "hard.jsonl").write_text(
        "".join(f'{{"question": "{a % 9} + {a // 9}", "answer": "{7000 + a}"}}\n' for a in range(80))
    )
    (folder / "long.jsonl").write_text(
        "".join(
            f'{{"question": "{a % 9} + {a // 9}{" + 1" * (9 if a % 3 else 0)}", "answer": "{a % 9 + a // 9}"}}\n'
            for a in range(80)
        )
    )
