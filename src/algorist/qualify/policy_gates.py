"""Gates over the policy: matched parents, the declared trainable set, incremental decoding against one full pass."""

import fnmatch
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import torch

from algorist.digest import JSON, digest, sha256
from algorist.errors import InputError
from algorist.flow import Batch, Group, Outcome, Reward, Rollout
from algorist.flow import Verdict as Judged
from algorist.policy.build import load_folder
from algorist.policy.model import CausalPolicy
from algorist.policy.weights import weights_digest
from algorist.qualify import replay
from algorist.qualify.config import ParametersConfig
from algorist.qualify.diagnose import diagnose
from algorist.qualify.gate import Gate, Verdict
from algorist.qualify.naive import Variant, token_logp
from algorist.qualify.subject import Subject
from algorist.rollout.local import LocalEngine
from algorist.train import rows as rows_of
from algorist.train.rows import Rows

_NOT_COMPUTED = frozenset(
    {
        "architectures", "bos_token_id", "dtype", "eos_token_id", "pad_token_id", "torch_dtype", "transformers_version", "use_cache",
        "output_attentions", "output_hidden_states", "return_dict", "id2label", "label2id", "problem_type", "chunk_size_feed_forward",
        "is_encoder_decoder", "tokenizer_class",
    }
)  # fmt: skip
"""Keys of a config that no logit depends on."""
_STEP = 10.0
"""Most that one update may move a typical weight, as a multiple of its size."""


def freeze(policy: CausalPolicy, cfg: ParametersConfig) -> int:
    """Stop the gradient of every parameter that a pattern names; returns how many were frozen.

    Raises InputError for a pattern that names none: a typing error must not unfreeze a router.
    """
    named = dict(policy.model.named_parameters())
    chosen: set[str] = set()
    for pattern in cfg.frozen:
        found = fnmatch.filter(named, pattern)
        if not found:
            raise InputError(
                f"qualify.parameters.frozen: {pattern!r} must name at least one parameter, it names none. The policy has, for "
                f"example, {', '.join(sorted(named)[:3])}."
            )
        chosen |= set(found)
    for name in chosen:
        named[name].requires_grad_(False)
    if chosen and len(chosen) == len(named):
        raise InputError("qualify.parameters.frozen: names every parameter, so nothing would be trained. Name fewer.")
    return len(chosen)


def parameters_gate(subject: Subject) -> Gate:
    """The trainable set is the declared one; routers of a mixture are counted, frozen or not."""
    model = subject.policy.model
    frozen = {n for n, p in model.named_parameters() if not p.requires_grad}
    strays = stray_parameters(subject.policy, subject.cfg.parameters)
    broken = _not_finite(subject.policy) or _rate(subject)
    routers = router_parameters(subject.policy)
    figures: dict[str, JSON] = {
        "parameters": subject.policy.num_parameters(),
        "trainable": sum(p.numel() for p in subject.policy.parameters()),
        "frozen_tensors": len(frozen),
        "frozen": frozen_digest(subject.policy),
        "router_tensors": len(routers),
        "router_tensors_trainable": sum(name not in frozen for name in routers),
    }
    trainable = [n for n in routers if n not in frozen]
    cause = ""
    verdict = Verdict.PASSED
    if broken:
        return Gate(
            name="parameters", value=1, threshold=0, unit="broken rule", verdict=Verdict.FAILED, cause=broken[0],
            remedy=broken[1], figures=figures,
        )  # fmt: skip
    if strays:
        side = "frozen, and no pattern says so" if strays[0] in frozen else "declared frozen, and would be trained"
        cause, verdict = (
            f"{len(strays)} parameters differ from the declared set (first: {strays[0]} is {side})",
            Verdict.FAILED,
        )
    elif trainable:
        cause = f"{len(trainable)} router tensors are trained, which lets expert load drift (first: {trainable[0]})"
        verdict = Verdict.REPORTED
    remedy = {
        Verdict.FAILED: "Name the parameters in qualify.parameters.frozen.",
        Verdict.REPORTED: f"Freeze them: qualify.parameters.frozen: ['{_pattern(trainable[0])}'], or watch router/max_over_mean."
        if trainable
        else "",
    }.get(verdict, "")
    return Gate(
        name="parameters", value=len(strays), threshold=0, unit="parameters off the declared set", verdict=verdict,
        cause=cause, remedy=remedy, figures=figures,
    )  # fmt: skip


def stray_parameters(policy: CausalPolicy, cfg: ParametersConfig) -> list[str]:
    """Parameters that are frozen and not declared so, or declared frozen and trained."""
    named = policy.model.named_parameters()
    declared = {n for n, _ in policy.model.named_parameters() if any(fnmatch.fnmatchcase(n, p) for p in cfg.frozen)}
    return sorted(declared ^ {n for n, p in named if not p.requires_grad})


def _not_finite(policy: CausalPolicy) -> tuple[str, str] | None:
    """(cause, remedy) of weights that are not numbers."""
    for name, p in policy.model.named_parameters():
        if not bool(torch.isfinite(p).all()):
            count = int((~torch.isfinite(p)).sum())
            return (
                f"every weight must be a finite number: {name} holds {count} that are not",
                "The checkpoint is damaged: take an earlier one, or copy it again.",
            )
    return None


def _rate(subject: Subject) -> tuple[str, str] | None:
    """(cause, remedy) of a rate that replaces the weights in one update, or that float32 cannot add to them.

    Adam moves each weight by about the rate, whatever the gradient; decay by rate times weight_decay of itself.
    """
    sizes = [float(p.detach().pow(2).mean().sqrt()) for p in subject.policy.model.parameters() if p.ndim >= 2]
    size = sorted(sizes)[len(sizes) // 2] if sizes else 1.0
    stages = {
        "sft": None if subject.sft is None else subject.sft.optimizer,
        "rl": None if subject.rl is None else subject.rl.optimizer,
    }
    for stage, cfg in stages.items():
        if cfg is None:
            continue
        step = cfg.lr / max(size, 1e-12)
        if step > _STEP:
            return (
                f"{stage}.optimizer.lr {cfg.lr:g} moves each weight by about {cfg.lr:g} in one update, and a typical weight is "
                f"{size:.2g}: nothing of the policy would be left",
                f"Lower {stage}.optimizer.lr; 1e-6 to 1e-4 is usual, and no more than {size / 10:.1g} here.",
            )
        if step < 1e-7:
            return (
                f"{stage}.optimizer.lr {cfg.lr:g} is lost when it is added to a typical weight of {size:.2g} in float32: nothing "
                "would be learned",
                f"Raise {stage}.optimizer.lr; 1e-6 to 1e-4 is usual.",
            )
        if cfg.lr * cfg.weight_decay > 0.1:
            return (
                f"{stage}.optimizer.weight_decay {cfg.weight_decay:g} at rate {cfg.lr:g} takes {cfg.lr * cfg.weight_decay:.0%} off every "
                "weight in one update",
                f"Lower {stage}.optimizer.weight_decay; 0 to 0.1 is usual.",
            )
    return None


def router_parameters(policy: CausalPolicy) -> list[str]:
    """Names of the parameters that choose experts."""
    config = policy.model.config
    experts = [getattr(config, key, None) for key in ("num_experts", "num_local_experts", "n_routed_experts")]
    count = next((int(e) for e in experts if e), 0)
    if not count:
        return []
    return [
        name
        for name, p in policy.model.named_parameters()
        if p.ndim == 2 and p.shape[0] == count and ("gate" in name or "router" in name)
    ]


def _pattern(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def parents_gate(subject: Subject, reference: CausalPolicy | None) -> Gate:
    """Policy, reference and serving copy carry the same weights, of the declared step.

    A checkpoint that does not say its step cannot keep a declared one, unless the weights themselves are declared. Reads
    the folders that qualify.parents names; raises InputError where one is no model folder.
    """
    cfg = subject.cfg.parents
    own = weights_digest(subject.policy, value_head=False)  # a value head has no parent
    digests = {"policy": own}
    configs = {"policy": config_digest(subject.policy.model.config)}
    if cfg.weights is not None:
        digests["declared"] = cfg.weights
    if reference is not None:
        digests["reference"] = weights_digest(reference, value_head=False)
    if isinstance(subject.engine, LocalEngine):
        same = subject.engine.policy is subject.policy
        digests["sampler"] = own if same else weights_digest(subject.engine.policy, value_head=False)
    steps: dict[str, int | None] = {}
    if cfg.step is not None:
        start = subject.policy_path
        steps["policy"] = None if start is None else saved_step((subject.base / start).resolve())
    for name, path in (("reference", cfg.reference), ("serving", cfg.serving)):
        if path is not None:
            folder = (subject.base / path).resolve()
            digests[name], configs[name] = saved_parent(folder, subject.policy.dtype)
            steps[name] = saved_step(folder)
    strangers = [name for name, d in digests.items() if d != own]
    wrong = [name for name, step in steps.items() if cfg.step is not None and step not in (None, cfg.step)]
    unsaid = [name for name, step in steps.items() if cfg.step is not None and step is None and cfg.weights is None]
    words = [f"{name} carries weights {digests[name][:12]}, the policy {own[:12]}" for name in strangers]
    unlike = [name for name, d in configs.items() if d != configs["policy"]]
    words += [
        f"{name} has another config.json than the policy, so that equal weights compute something else"
        for name in unlike
    ]
    words += [f"{name} was saved at step {steps[name]}, not {cfg.step}" for name in wrong]
    words += [f"{name} does not say at which step it was saved, and {cfg.step} is declared" for name in unsaid]
    remedies = ["Start policy, reference and sampler from one checkpoint."] if strangers or unlike or wrong else []
    if unsaid:
        remedies.append(
            f'Declare its weights (qualify.parents.weights: {own}), or, where you know the step, put {{"global_step": N}} into '
            "trainer_state.json beside it."
        )
    return Gate(
        name="parents",
        value=len(strangers) + len(unlike) + len(wrong) + len(unsaid),
        threshold=0,
        unit="parents that do not match",
        verdict=Verdict.FAILED if words else Verdict.PASSED,
        cause="; ".join(words),
        remedy=" ".join(remedies),
        figures={
            "digests": dict(digests),
            "config": configs["policy"],
            "steps": dict(steps),
            "declared_step": cfg.step,
        },
    )


def config_digest(config: object) -> str:
    """sha256 over what a model's config says of its computation: layers, heads, positions, activations; not where it came from.

    Equal weights under another config (rope_theta, say) are another policy.
    """
    told: dict[str, JSON] = config.to_dict()  # type: ignore[attr-defined]
    return digest({k: v for k, v in told.items() if k not in _NOT_COMPUTED and not k.startswith("_")})


def saved_parent(folder: Path, dtype: Literal["float32", "bfloat16"]) -> tuple[str, str]:
    """Digests of weights and config of a model folder, read once as long as its files are the same.

    Raises InputError where it is none.
    """
    files = sorted(folder.glob("*")) if folder.is_dir() else []
    return _saved_parent(folder, dtype, tuple((file.name, file.stat().st_mtime_ns) for file in files))


@cache
def _saved_parent(
    folder: Path, dtype: Literal["float32", "bfloat16"], _: tuple[tuple[str, int], ...]
) -> tuple[str, str]:
    model, tokenizer = load_folder(folder)
    policy = CausalPolicy(model, tokenizer, dtype=dtype, device=torch.device("cpu"))
    return weights_digest(policy), config_digest(model.config)


def saved_step(folder: Path) -> int | None:
    """Training step a checkpoint folder says it was saved at; None where it does not say."""
    for name, key in (
        ("trainer_state.json", "global_step"),
        ("algorist.json", "step"),
        ("training_state.json", "step"),
    ):
        file = folder / name
        if file.is_file():
            try:
                value = json.loads(file.read_bytes()).get(key)
            except (ValueError, AttributeError) as error:
                raise InputError(f"{file}: must be a JSON object with the training step: {error}") from error
            if value is not None:
                return int(value)
    return None


def cache_gate(subject: Subject) -> Gate:
    """Decode a few prompts step by step with the cache, and score the same tokens by one plain pass."""
    cfg, plan = subject.cfg.cache, subject.plan
    problems = (subject.trained or subject.problems.heldout)[: cfg.prompts]
    prompts = [subject.task.prompts[p.id] for p in problems if p.id in subject.task.prompts]
    if not prompts:
        return Gate(
            name="cache", value=None, threshold=cfg.nats, unit="nats", verdict=Verdict.ABSENT, cause="no prompts"
        )
    temperature = plan.temperature or 1.0
    short = type(plan)(
        temperature=temperature,
        top_p=plan.top_p,
        response_tokens=min(plan.response_tokens, cfg.tokens),
        stop_ids=plan.stop_ids,
    )
    groups = subject.engine.generate(
        prompts, num_samples=1, plan=short, policy_version=0, seed=subject.seed, salt="cache-gate"
    )
    return judge_cache(subject, [r for group in groups for r in group if r.token_ids])


def judge_cache(subject: Subject, sampled: Sequence[Rollout]) -> Gate:
    """The gate over rollouts of the present weights: each scored by one plain pass, a difference traced to its cause."""
    cfg, plan = subject.cfg.cache, subject.plan
    temperature = plan.temperature or 1.0
    bound = min(cfg.nats, subject.cfg.float32.mean_nats) if subject.policy.dtype == "float32" else cfg.nats
    rows = _rows(sampled)
    logp = torch.zeros(rows.mask.shape)
    for b, r in enumerate(sampled):
        variant = Variant(temperature=temperature, top_p=plan.top_p)
        logp[b, : len(r.token_ids)] = token_logp(subject.policy, r.prompt_ids, r.token_ids, variant)
    found = replay.measure(rows, logp)
    failed = not sampled or not found.difference.mean_nats <= bound
    cause = remedy = ""
    if failed and not sampled:
        cause = "the engine gave no token: the policy's logits are not finite, or its prompts are refused"
        remedy = "Look for weights that are not finite or far too large, and at the engine's own messages."
    elif failed:
        named = diagnose(subject.policy, rows, found, temperature=temperature)
        cause = f"decoding step by step differs from one full forward pass: {named.words}"
        remedy = f"{named.remedy} Else check cache layout, position ids and attention mask of the engine."
    return Gate(
        name="cache",
        value=found.difference.mean_nats,
        threshold=bound,
        unit="nats",
        verdict=Verdict.FAILED if failed else Verdict.PASSED,
        cause=cause,
        remedy=remedy,
        figures={
            "p99_nats": found.difference.p99_nats,
            "max_nats": found.difference.max_nats,
            "tokens": found.difference.num_tokens,
        },
    )


def _rows(sampled: Sequence[Rollout]) -> Rows:
    """Rollouts as rows, rewards left out."""
    reward, judged = Reward(value=0.0), Judged(verdict=Outcome.WRONG, reason="not judged")
    groups = tuple(
        Group(problem_id=r.problem_id, rollouts=(r,), verdicts=(judged,), rewards=(reward,)) for r in sampled
    )
    return rows_of.from_batch(Batch(index=0, policy_version=0, groups=groups))


def frozen_digest(policy: CausalPolicy) -> str:
    """sha256 over the parameters that must not move; equal before and after training."""
    frozen = {n: p for n, p in policy.model.named_parameters() if not p.requires_grad}
    return digest(
        {
            n: sha256(p.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
            for n, p in frozen.items()
        }
    )
