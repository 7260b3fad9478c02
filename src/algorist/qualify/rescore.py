"""The part of an audit that needs weights: kept checkpoints score stored tokens and answer held-out problems again."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from algorist.errors import InputError, ResumeMismatch
from algorist.evaluate.config import EvaluateConfig
from algorist.evaluate.result import EvaluationResult
from algorist.evaluate.runner import evaluate
from algorist.flow import Batch
from algorist.policy import weights
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy, Row
from algorist.qualify import draws
from algorist.qualify.agree import bounds_of
from algorist.qualify.evidence import Evidence, whole
from algorist.qualify.replay import measure
from algorist.qualify.subject import Subject
from algorist.record import commit
from algorist.record.ledger import EventKind
from algorist.rollout.local import LocalEngine
from algorist.seeds import generator
from algorist.stages.config import SFTConfig
from algorist.train import rows as rows_of
from algorist.train.rows import Rows
from algorist.train.trainer import gate_value

Tell = Callable[[str], None]
_ANSWERED = 8
"""Held-out problems of an evaluation that are answered again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What a recipe says of the stages around RL, and where this is computed."""

    evaluate: EvaluateConfig
    sft: SFTConfig | None
    targets: tuple[Row, ...]
    """SFT examples."""
    exact: bool
    """Machine and libraries are those of the run, so that training again must give the same bits."""
    limit: int
    """Most steps that are trained again."""
    seed: int
    """Picks what is answered again."""
    tell: Tell
    """Hears what is being done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A kept checkpoint, or the start of the run."""

    path: Path | None
    """None: the starting policy, before anything was trained."""
    phase: str
    sft_steps: int
    batches: int
    applied: int

    @property
    def name(self) -> str:
        """For people."""
        return "the starting policy" if self.path is None else self.path.name

    @property
    def number(self) -> int:
        """Finished SFT steps and batches."""
        return self.sft_steps + self.batches


def saved_positions(e: Evidence) -> list[Saved]:
    """The checkpoints that are there, oldest first."""
    found = []
    for path in commit.numbered(e.folder.checkpoints):
        state = json.loads((path / "state.json").read_bytes())
        numbers = {name: int(state[name]) for name in ("sft_steps", "batches", "applied")}
        found.append(Saved(path=path, phase=str(state["phase"]), **numbers))
    return found


def start_and_kept(e: Evidence, contract: str) -> list[Saved]:
    """The starting policy, where a contract began with it, and the checkpoints."""
    start = Saved(path=None, phase="start", sft_steps=0, batches=0, applied=0)
    return [*([start] if contract == e.events[0].contract else []), *saved_positions(e)]


def load(subject: Subject, saved: Saved, *, reference: bool = False) -> CausalPolicy:
    """A policy, trainable as the subject's, with the weights (or reference weights) of a checkpoint. Raises InputError."""
    policy = copy_policy(subject.policy)
    for ours, theirs in zip(policy.model.parameters(), subject.policy.model.parameters(), strict=True):
        ours.requires_grad_(theirs.requires_grad)
    if saved.path is not None:
        file = saved.path / ("reference.safetensors" if reference else "weights.safetensors")
        try:
            weights.load_state(policy, file)
        except (ResumeMismatch, OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise InputError(f"{file}: its weights cannot be loaded ({error})") from error
    return policy


def tensors(file: Path) -> dict[str, Tensor]:
    """What a safetensors file holds. Raises InputError."""
    try:
        return load_file(file)
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{file}: cannot be read ({error})") from error


def replays(e: Evidence, subject: Subject, contract: str, again: Again) -> tuple[str, Iterator[str]]:
    """Batches whose weights are still there (a checkpoint before them), scored again."""
    rl = subject.rl
    if rl is None or rl.source == "dataset":
        return f"skipped: {'no RL stage' if rl is None else 'worked solutions were not sampled'}", iter(())
    events = {whole(ev, "batch"): ev for ev in e.of(EventKind.ROLLOUT_BATCH) if ev.contract == contract}
    places = [s for s in start_and_kept(e, contract) if s.path is not None or not subject.has_sft]
    sources = {s.batches: s for s in places if s.batches in events}  # of several before one batch the newest sampled it

    def faults() -> Iterator[str]:
        for index, saved in sources.items():
            path, event = e.batch_file(events[index]), events[index]
            if any(ev.payload.get("passed") is False for ev in e.events[event.seq : event.seq + 4]):
                continue  # the run itself ended over it
            again.tell(f"scoring batch {index} with {saved.name}")
            offline = (
                rl.source != "online" and saved.path is not None and (saved.path / "reference.safetensors").is_file()
            )
            policy = load(subject, saved, reference=offline)  # offline rollouts come from the policy as RL found it
            batch = e.stored(event).batch
            rows = rows_of.from_batch(batch)
            logp, below = _score(policy, rows, rl.sampling.temperature, rl.micro_batch_tokens)
            words = disagreement(subject, batch, rows, logp, below, rows.mask)
            if words:
                yield f"{path}: was not sampled by the weights of {saved.name}: {words}"

    words = ", ".join(f"batch {i} by {saved.name}" for i, saved in sources.items())
    others = len(events) - len(sources)
    left_out = f"{others} batches: the weights that sampled them are not kept" if others else ""
    return (
        f"{words}{'; not ' if left_out else ''}{left_out}" if words else f"skipped: {left_out or 'no batch'}"
    ), faults()


def disagreement(
    subject: Subject,
    batch: Batch,
    rows: Rows,
    logp: Float[Tensor, "B T"],
    below: Float[Tensor, "B T"],
    scored: Bool[Tensor, "B T"],
) -> str:
    """How stored tokens, log-probabilities and seeds differ from what a policy gives; '' where they agree.

    logp, below, scored: as in train.trainer.Computed.
    """
    found, bounds = measure(rows, logp, mask=scored), bounds_of(subject)
    if broken := found.over(bounds):
        value = gate_value(found.difference, broken[0].statistic)
        return f"{broken[0].statistic} difference {value:.4g} nats, at most {broken[0].nats:g} allowed"
    rollouts = [r for group in batch.groups for r in group.rollouts]
    drawn = draws.check(rollouts, logp, below, scored, dtype=subject.policy.dtype)
    return f"{drawn.off} of {drawn.tokens} tokens are not what their seeds draw" if drawn.broken else ""


def last_weights(e: Evidence, subject: Subject) -> tuple[str, Iterator[str]]:
    """Last checkpoint, export and closing event speak of the same weights, and the export of the contract's tokenizer."""
    saved = saved_positions(e)
    if not e.closed or not saved:
        return "skipped: the run is not closed", iter(())

    def faults() -> Iterator[str]:
        policy, export = load(subject, saved[-1]), e.folder.export
        mine, said = weights.weights_digest(policy), str(e.events[-1].payload.get("weights"))
        if mine != said:
            yield f"{saved[-1].path}: holds weights {mine[:16]}, the run closed with {said[:16]}"
        facts = json.loads((export / "algorist.json").read_bytes())
        if facts.get("weights") != (digest := weights.weights_digest(policy, value_head=False)):
            yield f"{export / 'algorist.json'}: names the weights {facts.get('weights')}, {saved[-1].name} holds {digest}"
        own = {name: t for name, t in weights.state(policy).items() if not name.startswith("value_head.")}
        exported: dict[str, Tensor] = {}
        for file in sorted(export.glob("*.safetensors")):
            exported |= tensors(file)
        odd = [n for n in own if n not in exported or not torch.equal(own[n], exported[n].to(own[n].dtype))]
        if odd or not exported.keys() <= own.keys():
            yield f"{export}: its weights are not those of {saved[-1].name}: {min(odd or exported.keys() - own.keys())} differs"
        if _tokenizer(export) != e.contract["policy"]["tokenizer"]:
            yield f"{export}: its tokenizer is not the one that the contract names"

    return f"{saved[-1].name} against export and closing event", faults()


def answers(e: Evidence, subject: Subject, contract: str, again: Again) -> tuple[str, Iterator[str]]:
    """Some held-out problems of each evaluation whose weights are kept, answered again with the same random numbers."""
    events = {str(ev.payload["name"]): ev for ev in e.of(EventKind.EVALUATION_COMPLETED) if ev.contract == contract}
    wanted = {str(ev.payload["policy_digest"]): name for name, ev in events.items()}
    found: dict[str, Saved] = {}
    for saved in start_and_kept(e, contract):
        name = wanted.get(weights.weights_digest(load(subject, saved)))
        if name is not None:
            found[name] = saved
    left_out = [name for name in events if name not in found]
    words = ", ".join(f"{name} by {saved.name}" for name, saved in found.items())
    why = f"not {', '.join(left_out)}: the weights are not kept" if left_out else ""

    def faults() -> Iterator[str]:
        for name, saved in found.items():
            again.tell(f"answering problems of {name} with {saved.name}")
            yield from _answered(e.folder.evaluation(name), subject, load(subject, saved), again)

    if not found:
        return f"skipped: {why or 'no evaluation'}", faults()
    return f"up to {_ANSWERED} problems of {words}{'; ' if why else ''}{why}", faults()


def _answered(path: Path, subject: Subject, policy: CausalPolicy, again: Again) -> Iterator[str]:
    stored = EvaluationResult.read(path)
    if [r.problem_id for r in stored.records] != [p.id for p in subject.task.heldout]:
        yield f"{path}: must list the held-out problems of the recipe, in order"
        return
    picked = sorted(generator(again.seed, "answers", stored.name).permutation(len(stored.records))[:_ANSWERED].tolist())
    problems = [subject.task.heldout[i] for i in picked]
    mine = evaluate(
        stored.name,
        problems=problems,
        prompts=[subject.task.prompts[p.id] for p in problems],
        engine=LocalEngine(policy),
        grade=subject.task.grade,
        cfg=again.evaluate.model_copy(update={"bootstrap": 100}),
        response_tokens=subject.response_tokens,
        stop_ids=subject.task.stop_ids,
        policy_digest=stored.policy_digest,
        seed=subject.seed,
        canonical=subject.task.canonical,
    )
    odd = [r.problem_id for i, r in zip(picked, mine.records, strict=True) if r != stored.records[i]]
    # a response decoded beside others may round differently, and one rounding in a long response changes its end
    if len(odd) > max(1, len(picked) // (8 if again.exact else 4)):
        yield f"{path}: {len(odd)} of {len(picked)} problems answered again by the same weights come out differently, as {odd[0]}"


@torch.no_grad()
def _score(policy: CausalPolicy, rows: Rows, temperature: float, max_tokens: int) -> tuple[Tensor, Tensor]:
    """(log-probabilities, where each draw begins) of all trained rows."""
    logp, below = torch.zeros(rows.mask.shape), torch.zeros(rows.mask.shape)
    chosen = rows.mask.any(1).nonzero().squeeze(1).tolist()
    tokens: Sequence[Row] = [rows.tokens[i] for i in chosen]
    with policy.compute():
        for batch in policy.micro_batches(tokens, max_tokens=max_tokens):
            scores = policy.score(batch, tokens, temperature=temperature, num_tokens=rows.num_tokens)
            index = torch.tensor([chosen[i] for i in scores.rows])
            logp[index], below[index] = scores.logp.cpu(), scores.below.cpu()
    return logp, below


def _tokenizer(folder: Path) -> str:
    from transformers import AutoTokenizer

    from algorist.policy.build import quiet_transformers

    try:
        with quiet_transformers():
            tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        return weights.tokenizer_digest(tokenizer)
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise InputError(f"{folder}: its tokenizer cannot be loaded ({type(error).__name__}: {error})") from error
