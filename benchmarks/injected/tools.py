"""What faults are made of: ways to change a recipe, its files, a prepared run, the code itself, or a stopped run."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from algorist.flow import Outcome, Problem, Prompt, Reward, Rollout, Verdict
from algorist.launch.prepare import Prepared
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.qualify.naive import Variant, token_logp
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.train.trainer import Assigned, Trainer

TEMPERATURE = 0.8
"""Of the recipe that faults are injected into."""


@dataclass(frozen=True)
class Fault:
    """One injected fault."""

    name: str
    source: str
    """Where it was seen: a line of facts/pain.md, a public thread, a seed."""
    gates: tuple[str, ...]
    """Gates that may catch it; "recipe" where nothing was begun."""
    words: str = ""
    """What the message must name."""
    code: int = 4
    overrides: tuple[str, ...] = ()
    tamper: Callable[[Prepared], Prepared] | None = None
    """Changes the prepared run behind its back."""
    patch: Callable[["Patch"], None] | None = None
    """Changes the code while it runs."""
    files: Callable[[Path, Path], Sequence[str]] | None = None
    """(folder of the recipe, empty folder in it) -> overrides: writes other files."""
    resume: Callable[[Path], None] | None = None
    """Changes a run folder that was stopped after two batches; then it is resumed."""
    updates: int = 0
    """Updates that may have been applied before it is caught: those before it happens."""
    kind: str = ""


@dataclass
class Patch:
    """Attributes set for a while."""

    undo: list[tuple[object, str, object, bool]] = field(default_factory=list)

    def set(self, owner: object, name: str, make: Callable[[Any], object]) -> None:
        """owner.name becomes make(what it was)."""
        old = getattr(owner, name)
        self.undo.append((owner, name, old, name in vars(owner)))
        setattr(owner, name, make(old))

    def __enter__(self) -> "Patch":
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, old, own in reversed(self.undo):
            setattr(owner, name, old) if own else delattr(owner, name)


# -- sampler --------------------------------------------------------------------------------------------------------


@dataclass
class Tampered:
    """An engine that does something wrong in training batches (everywhere, with `always`)."""

    inner: object
    change: Callable[[Rollout], Rollout] = lambda r: r
    plan: Callable[[SamplingPlan], SamplingPlan] = lambda p: p
    prompts: Callable[[Sequence[Prompt]], Sequence[Prompt]] = lambda p: p
    groups: Callable[[list[list[Rollout]]], Any] = lambda g: g
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
        if asked is not prompts:  # what is stored is what was asked for, not what was used
            groups = [
                [replace(r, problem_id=p.problem_id, prompt_ids=p.token_ids) for r in group]
                for p, group in zip(prompts, groups, strict=True)
            ]
        return self.groups([[self.change(r) for r in group] for group in groups])


@dataclass
class Switched:
    """One engine for gates and evaluation, another one for training batches from some version on."""

    gates: object
    training: object
    from_version: int = 0

    def generate(self, prompts, **kwargs):
        training = kwargs.get("salt", "").startswith("batch") and kwargs["policy_version"] >= self.from_version
        return (self.training if training else self.gates).generate(prompts, **kwargs)


def engine(**kwargs: object) -> Callable[[Prepared], Prepared]:
    """Tamper with the engine; `change` gets (prepared run, rollout)."""

    def tamper(prepared: Prepared) -> Prepared:
        change = kwargs.get("change")
        made = {**kwargs, "change": (lambda r: change(prepared, r))} if change else kwargs
        return replace(prepared, engine=Tampered(prepared.engine, **made))

    return tamper


def plan(**changes: object) -> Callable[[SamplingPlan], SamplingPlan]:
    return lambda p: replace(p, **changes)


def rescored(**variant: object) -> Callable[[Prepared, Rollout], Rollout]:
    """The stored log-probabilities are those of another distribution."""

    def change(prepared: Prepared, r: Rollout) -> Rollout:
        how = Variant(**{"temperature": TEMPERATURE, **variant})
        return replace(r, behaviour_logp=tuple(token_logp(prepared.policy, r.prompt_ids, r.token_ids, how).tolist()))

    return change


def stored(change: Callable[[list[float]], Sequence[float]], only: Callable[[Rollout], bool] = lambda r: True):
    """The stored log-probabilities are written down wrongly, in some rows."""
    return lambda p, r: replace(r, behaviour_logp=tuple(change(list(r.behaviour_logp)))) if only(r) else r


def served(change: Callable[[CausalPolicy], None], from_version: int = 0) -> Callable[[Prepared], Prepared]:
    """The sampler serves other weights of the same shape, stamped as the present ones."""

    def tamper(prepared: Prepared) -> Prepared:
        policy = copy_policy(prepared.policy)
        with torch.no_grad():
            change(policy)
        return replace(prepared, engine=Switched(prepared.engine, LocalEngine(policy), from_version))

    return tamper


def cut(r: Rollout, length: int) -> Rollout:
    return replace(
        r, token_ids=r.token_ids[:length], behaviour_logp=r.behaviour_logp[:length], policy_version=r.policy_version[:length],
        loss_mask=r.loss_mask[:length],
    )  # fmt: skip


# -- verifier, reward, data, weights -----------------------------------------------------------------------------------


@dataclass
class Judge:
    """A verifier with a fault, from some call on."""

    inner: object
    change: Callable[[list[Verdict], Sequence[Any]], Any]
    after: int = 0
    calls: int = 0

    def check_many(self, items):
        self.calls += 1
        found = self.inner.check_many(items)
        return self.change(found, items) if self.calls > self.after else found

    def close(self) -> None:
        self.inner.close()


def verifier(change: Callable[[list[Verdict], Sequence[Any]], Any], after: int = 0) -> Callable[[Prepared], Prepared]:
    """after: calls that are still answered rightly; the first is the canary's, then two a batch."""
    return lambda p: replace(p, task=replace(p.task, verifier=Judge(p.task.verifier, change, after)))


def says(outcome: Outcome, reason: str = "x") -> Callable[[list[Verdict], Sequence[Any]], list[Verdict]]:
    return lambda verdicts, items: [replace(v, verdict=outcome, reason=reason) for v in verdicts]


def reward(function: Callable[[Problem, Rollout, Verdict], float | Reward]) -> Callable[[Prepared], Prepared]:
    return lambda p: replace(p, task=replace(p.task, reward=function))


def data(**parts: Callable[[Prepared], object]) -> Callable[[Prepared], Prepared]:
    def tamper(prepared: Prepared) -> Prepared:
        changed = {name: make(prepared) for name, make in parts.items()}
        return replace(prepared, problems=replace(prepared.problems, **changed))

    return tamper


def prompts_of(change: Callable[[Prompt], Prompt]) -> Callable[[Prepared], Prepared]:
    return prompts_with(lambda prepared, p: change(p))


def prompts_with(change: Callable[[Prepared, Prompt], Prompt]) -> Callable[[Prepared], Prepared]:
    def tamper(prepared: Prepared) -> Prepared:
        prompts: Mapping[str, Prompt] = {k: change(prepared, p) for k, p in prepared.task.prompts.items()}
        return replace(prepared, task=replace(prepared.task, prompts=prompts))

    return tamper


def weights(change: Callable[[CausalPolicy], None]) -> Callable[[Prepared], Prepared]:
    def tamper(prepared: Prepared) -> Prepared:
        with torch.no_grad():
            change(prepared.policy)
        return prepared

    return tamper


def jsonl(rows: Sequence[Mapping[str, object]], fields: str = "") -> Callable[[Path, Path], Sequence[str]]:
    """Problems from a file of these rows."""
    import json

    def files(base: Path, folder: Path) -> Sequence[str]:
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return (f"problems.source={{kind: jsonl, path: {folder.name}/rows.jsonl{fields}}}",)

    return files


def checkpoint(change: Callable[[Path], None], *overrides: str) -> Callable[[Path, Path], Sequence[str]]:
    """The start policy's folder, changed."""
    import shutil

    def files(base: Path, folder: Path) -> Sequence[str]:
        shutil.copytree(base / "start", folder / "policy")
        (folder / "policy" / "manifest.json").unlink()  # as a model from elsewhere, which has none
        change(folder / "policy")
        return (f"policy.path={folder.name}/policy", *overrides)

    return files


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    """The weights of a checkpoint folder, changed."""
    from safetensors.torch import load_file, save_file

    def edit(folder: Path) -> None:
        file = folder / "model.safetensors"
        found = load_file(file)
        change(found)
        save_file(found, file, metadata={"format": "pt"})

    return edit


def as_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A JSON file of a folder, changed."""
    import json

    def edit(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        change(document)
        (folder / name).write_text(json.dumps(document))

    return edit


# -- training -------------------------------------------------------------------------------------------------------


def trainer(change: Callable[[Trainer], object], from_update: int = 0) -> Callable[[Patch], None]:
    """Something is done to the trainer of RL before the step that follows `from_update` applied ones."""

    def patch(p: Patch) -> None:
        def make(old):
            def step(self, assigned, *, batch, look=None):
                if self.applied >= from_update and not getattr(self, "changed", False):
                    self.changed = True
                    change(self)
                return old(self, assigned, batch=batch, look=look)

            return step

        p.set(Trainer, "step", make)

    return patch


def made(**arguments: object) -> Callable[[Patch], None]:
    """Every trainer is made with other arguments than its caller gave."""
    return lambda p: p.set(Trainer, "__init__", lambda old: lambda self, **given: old(self, **{**given, **arguments}))


def assigned(change: Callable[[Assigned], Assigned], from_update: int = 0) -> Callable[[Patch], None]:
    """What the batch is worth is changed on its way to the step."""

    def make(old):
        def assign(self, rows, **kwargs):
            found = old(self, rows, **kwargs)
            return change(found) if self.applied >= from_update else found

        return assign

    return lambda p: p.set(Trainer, "assign", make)


def credit(**changes: Callable[[Any], torch.Tensor]) -> Callable[[Patch], None]:
    """Fields of the credit, from the credit."""
    return assigned(
        lambda a: replace(a, credit=dataclasses.replace(a.credit, **{k: make(a.credit) for k, make in changes.items()}))
    )


def loss(change: Callable[[torch.Tensor, Any], torch.Tensor], from_update: int = 0) -> Callable[[Patch], None]:
    """The method's loss is another one."""

    def swap(t: Trainer) -> None:
        method = t.method
        t.method = replace(method, loss=lambda batch, cfg: change(method.loss(batch, cfg), batch))

    return trainer(swap, from_update)


def after_step(change: Callable[[Trainer], object], from_update: int = 0) -> Callable[[Patch], None]:
    """Something happens to the trainer once a step is done."""

    def make(old):
        def step(self, assigned, *, batch, look=None):
            told = old(self, assigned, batch=batch, look=look)
            if self.applied >= from_update:
                with torch.no_grad():
                    change(self)
            return told

        return step

    return lambda p: p.set(Trainer, "step", make)
