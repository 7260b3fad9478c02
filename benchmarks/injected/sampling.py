"""Sampling against scoring: the policy that samples, the distribution it samples from, and what is stored of it."""

import math
from dataclasses import replace

import torch

import algorist.rollout.local as local
from algorist.flow import Prompt
from algorist.launch.prepare import Prepared
from algorist.policy.build import copy_policy
from algorist.policy.model import CausalPolicy
from algorist.rollout.local import LocalEngine
from injected.tools import TEMPERATURE, Fault, Switched, engine, made, plan, rescored, served, stored

REPLAY = ("replay",)


def other_token(prepared: Prepared, r):
    """One token in the middle is another one, and the text is made to fit: what encoding the text again does."""
    if len(r.token_ids) < 2 or r.sample % 2:
        return r
    new = 4 + (r.token_ids[-2] - 3) % 8
    ids = (*r.token_ids[:-2], new, r.token_ids[-1])
    keep = [t for t in ids if t not in prepared.task.stop_ids]
    return replace(r, token_ids=ids, text=prepared.policy.tokenizer.decode(keep, skip_special_tokens=True))


def noise(scale: float, where: str = ""):
    def change(policy: CausalPolicy) -> None:
        for name, parameter in policy.model.named_parameters():
            if where in name:
                parameter.add_(scale * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))

    return change


def swap_layers(policy: CausalPolicy) -> None:
    own = dict(policy.model.named_parameters())
    for name in [n for n in own if ".layers.0." in n]:
        first, second = own[name], own[name.replace(".layers.0.", ".layers.1.")]
        kept = first.clone()
        first.copy_(second)
        second.copy_(kept)


def adapter(policy: CausalPolicy) -> None:
    made = torch.Generator().manual_seed(0)
    for name, p in policy.model.named_parameters():
        if "q_proj" in name:
            p.add_(0.05 * torch.randn(p.shape[0], 2, generator=made) @ torch.randn(2, p.shape[1], generator=made))


def rounded_head(policy: CausalPolicy) -> None:
    head = policy.model.get_output_embeddings().weight
    step = head.abs().max() / 127
    head.copy_((head / step).round() * step)


def stale(prepared: Prepared) -> Prepared:
    """The sampler never gets an update; stamps say it does."""
    return replace(prepared, engine=Switched(prepared.engine, LocalEngine(copy_policy(prepared.policy))))


def lagging(part: str):
    """The sampler always serves the weights of one update ago, in some of its parameters."""

    class Lagging:
        def __init__(self, inner: LocalEngine) -> None:
            self.inner, self.before = inner, None

        def generate(self, prompts, **kwargs):
            own = self.inner.policy
            if not kwargs.get("salt", "").startswith("batch"):
                return self.inner.generate(prompts, **kwargs)
            now, served_policy = copy_policy(own), copy_policy(own)
            if self.before is not None:
                past = dict(self.before.model.named_parameters())
                with torch.no_grad():
                    for name, p in served_policy.model.named_parameters():
                        if part in name:
                            p.copy_(past[name])
            self.before = now
            return LocalEngine(served_policy).generate(prompts, **kwargs)

    return lambda prepared: replace(prepared, engine=Lagging(prepared.engine))


def drawn(distribution):
    """Tokens are drawn from another distribution than the one whose log-probabilities are stored."""

    def patch(p) -> None:
        def make(old):
            def sample(logits, uniform, how):
                if how.temperature == 0:
                    return old(logits, uniform, how)
                token, _, finite = old(distribution(logits.float(), how), uniform, replace(how, temperature=1.0))
                logp = torch.log_softmax(logits.float() / how.temperature, dim=-1)
                chosen = logp.gather(-1, torch.from_numpy(token)[:, None]).squeeze(-1)
                return token, chosen.numpy(), finite

            return sample

        p.set(local, "sample", make)

    return patch


def top_k(logits, k: int):
    floor = logits.topk(k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < floor, -1e9)


def prefixed(*ids: int):
    return lambda prompts: [replace(p, token_ids=(*ids, *p.token_ids)) for p in prompts]


def each(change):
    return lambda prompts: [replace(p, token_ids=tuple(change(list(p.token_ids)))) for p in prompts]


def neighbours(prompts):
    ids = [p.token_ids for p in prompts]
    return [replace(p, token_ids=other) for p, other in zip(prompts, [*ids[1:], ids[0]], strict=True)]


def chat(prepared: Prepared) -> Prepared:
    tokenizer = prepared.policy.tokenizer
    problems = prepared.task.by_id

    def rendered(p: Prompt) -> Prompt:
        message = [{"role": "user", "content": problems[p.problem_id].question}]
        text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        return replace(p, token_ids=tuple(tokenizer.encode(text, add_special_tokens=False)))

    return engine(prompts=lambda prompts: [rendered(p) for p in prompts])(prepared)


def step_with(change):
    """Incremental decoding is wrong: change(ids, position, visible) -> the same."""

    def patch(p) -> None:
        def make(old):
            return lambda self, ids, position, visible, cache: old(self, *change(ids, position, visible), cache)

        p.set(CausalPolicy, "step", make)

    return patch


def window(ids, position, visible):
    seen = visible.clone()
    seen[:, :-3] = 0
    return ids, position, seen


def mixed_lines(p) -> None:
    p.set(CausalPolicy, "step", lambda old: lambda self, *a: old(self, *a).roll(1, 0))


def scored(change):
    """The trainer's own scoring is wrong."""
    return lambda p: p.set(CausalPolicy, "score", lambda old: lambda self, *a, **k: change(old(self, *a, **k)))


def later(change):
    """Sampling from a kept policy goes wrong from the second batch on; change(plan) -> plan."""

    def make(old):
        def generate(self, prompts, *, plan, salt="", **k):
            late = salt.startswith("batch") and salt != "batch-0"
            return old(self, prompts, plan=change(plan) if late else plan, salt=salt, **k)

        return generate

    return lambda p: p.set(LocalEngine, "generate", make)


BFLOAT16 = ("policy.dtype=bfloat16",)
OFFLINE = ("rl.replay.every=10", "rl.optimizer.lr=1e-6")

FAULTS = (
    # another distribution
    Fault("temperature not applied to stored log-probs", "C44", REPLAY, "temperature",
          tamper=engine(change=rescored(temperature=1.0))),
    Fault("temperature not applied when sampling", "C44", REPLAY, "temperature", tamper=engine(plan=plan(temperature=1.0))),
    Fault("temperature 5 % too low", "C44", REPLAY, "temperature 0.76",
          tamper=engine(plan=plan(temperature=0.95 * TEMPERATURE))),
    Fault("temperature 5 % too low in bfloat16", "C44", REPLAY, "temperature 0.759", overrides=BFLOAT16,
          tamper=engine(plan=plan(temperature=0.95 * TEMPERATURE))),
    Fault("another temperature for later batches of DPO", "C44", REPLAY, "temperature 1.2",
          overrides=(*OFFLINE, "rl.objective={name: dpo, beta: 0.1}"), patch=later(plan(temperature=1.2)), updates=1),
    Fault("top-p for later batches of rejection sampling", "C45", REPLAY, "top-p",
          overrides=(*OFFLINE, "rl.objective={name: rft}"), patch=later(plan(top_p=0.8)), updates=1),
    Fault("temperature twice too high", "C44", REPLAY, "temperature 1.6",
          tamper=engine(plan=plan(temperature=2 * TEMPERATURE))),
    Fault("temperature applied twice", "C44", REPLAY, "temperature 0.64", tamper=engine(plan=plan(temperature=TEMPERATURE**2))),
    Fault("temperature wrong from the third batch on", "C44", REPLAY, "temperature",
          overrides=("rl.replay.every=10",), tamper=engine(plan=plan(temperature=1.1), from_version=2), updates=2),
    Fault("temperature fault already in the gate's own rollouts", "C44", ("cache",), "temperature",
          tamper=engine(change=rescored(temperature=1.0), always=True)),
    Fault("top-p mask missing in the trainer", "C45", REPLAY, "top-p", tamper=engine(plan=plan(top_p=0.8))),
    Fault("top-p 0.5", "C45", REPLAY, "top-p mass of 0.5", tamper=engine(plan=plan(top_p=0.5))),
    Fault("top-p 0.95 from the second batch on", "C45", REPLAY, "top-p", overrides=("rl.replay.every=10",),
          tamper=engine(plan=plan(top_p=0.95), from_version=1), updates=1),
    Fault("top-p below 1 in the recipe", "C45", ("recipe",), "top_p", code=2, overrides=("rl.sampling.top_p=0.9",)),
    Fault("top-k sampling", "C45", ("replay", "rollouts"), "", tamper=engine(change=rescored(top_k=5))),
    Fault("drawn at temperature 0.5, log-probs of 0.8 stored", "C44", REPLAY, "temperature 0.5",
          patch=drawn(lambda x, how: x / 0.5)),
    Fault("drawn from the likeliest two, log-probs of all stored", "C45", REPLAY, "while the log-probabilities are those of",
          patch=drawn(lambda x, how: top_k(x / how.temperature, 2))),
    Fault("greedy draws, log-probs of sampling stored", "C45", REPLAY, "greedy", patch=drawn(lambda x, how: top_k(x, 1))),
    Fault("logits scaled by 1.05 in the sampler", "C46", REPLAY, "temperature",
          tamper=served(lambda policy: policy.model.get_output_embeddings().weight.mul_(1.05))),
    # other weights
    Fault("stale weights in the sampler", "C48", REPLAY, "", tamper=stale, updates=1),
    Fault("weights one update behind, checked at update 0 only", "C48", REPLAY, "", overrides=("rl.replay.every=10",),
          tamper=lagging(""), updates=1),
    Fault("one layer one update behind", "C48", REPLAY, "", overrides=("rl.replay.every=10",),
          tamper=lagging("layers.1.mlp"), updates=1),
    Fault("norms one update behind", "C48", REPLAY, "", overrides=("rl.replay.every=10",), tamper=lagging("norm"), updates=1),
    Fault("swapped adapter", "issue", REPLAY, "", tamper=served(noise(0.05))),
    Fault("a low-rank adapter in the sampler only", "issue", REPLAY, "adapters merged", tamper=served(adapter)),
    Fault("two layers swapped in the sampler", "issue", REPLAY, "", tamper=served(swap_layers)),
    Fault("two layers swapped from the third batch on", "issue", REPLAY, "", overrides=("rl.replay.every=10",),
          tamper=served(swap_layers, from_version=2), updates=2),
    Fault("one weight of the sampler is no number", "B20", ("signal", "replay"), "not finite",
          tamper=served(lambda policy: next(policy.model.parameters()).view(-1)[:1].fill_(math.nan))),
    Fault("head rounded to 8 bits in the sampler", "performance", REPLAY, "precision", tamper=served(rounded_head)),
    Fault("bfloat16 head in the sampler", "performance", REPLAY, "bfloat16",
          tamper=engine(change=rescored(head=torch.bfloat16))),
    Fault("float16 head in the sampler", "performance", REPLAY, "", tamper=engine(change=rescored(head=torch.float16))),
    Fault("bfloat16 sampler under a float32 contract", "performance", REPLAY, "bfloat16",
          tamper=engine(change=rescored(compute=torch.bfloat16))),
    # other prompts
    Fault("wrong chat template in the sampler (one more token before)", "C44", REPLAY, "", tamper=engine(prompts=prefixed(5))),
    Fault("the tokenizer's chat template in the sampler only", "D66", REPLAY, "chat template", tamper=chat),
    Fault("a beginning token before the prompt", "C44", REPLAY, "another prompt", tamper=engine(prompts=prefixed(1))),
    Fault("two beginning tokens before the prompt", "C44", REPLAY, "another prompt", tamper=engine(prompts=prefixed(1, 1))),
    Fault("sampler drops the last prompt token", "C44", REPLAY, "another prompt",
          tamper=engine(prompts=each(lambda x: x[:-1]))),
    Fault("sampler drops the first prompt token", "C44", REPLAY, "another prompt",
          tamper=engine(prompts=each(lambda x: x[1:]))),
    Fault("sampler repeats the prompt", "C44", REPLAY, "twice in a row", tamper=engine(prompts=each(lambda x: x + x))),
    Fault("sampler gets the prompt of the next problem", "A2", REPLAY, "next problem", tamper=engine(prompts=neighbours)),
    # what is stored
    Fault("log-probs shifted to the next token", "C27", REPLAY, "shifted by one",
          tamper=engine(change=stored(lambda x: x[1:] + x[:1]))),
    Fault("log-probs shifted to the previous token", "C27", REPLAY, "shifted by one",
          tamper=engine(change=stored(lambda x: x[-1:] + x[:-1]))),
    Fault("log-probs shifted in one row of six", "C27", REPLAY, "of 72 responses",
          tamper=engine(change=stored(lambda x: x[1:] + x[:1], lambda r: r.sample == 2 and len(set(r.behaviour_logp)) > 1))),
    Fault("last token's log-prob off", "B26", REPLAY, "last token",
          tamper=engine(change=stored(lambda x: [*x[:-1], x[-1] - 0.7]))),
    Fault("one token of one row off by 0.05 nats", "C46", REPLAY, "responses agree",
          tamper=engine(change=stored(lambda x: [x[0] - 0.05, *x[1:]], lambda r: r.sample == 2))),
    Fault("log-probs of another row", "C46", REPLAY, "",
          tamper=engine(groups=lambda g: [
              [replace(r, behaviour_logp=(*group[i - 1].behaviour_logp, -1.0, -1.0, -1.0)[: len(r.token_ids)]) for i, r in enumerate(group)]
              for group in g])),
    Fault("log-probs missing (zeros)", "B36", REPLAY, "same log-probability",
          tamper=engine(change=stored(lambda x: [0.0] * len(x)))),
    Fault("log-probs all -1", "B36", REPLAY, "same log-probability", tamper=engine(change=stored(lambda x: [-1.0] * len(x)))),
    Fault("log-probs in bits", "C45", REPLAY, "in bits", tamper=engine(change=stored(lambda x: [v / math.log(2) for v in x]))),
    Fault("log-probs averaged over the response", "B37", REPLAY, "mean of its response",
          tamper=engine(change=stored(lambda x: [sum(x) / len(x)] * len(x) if x else x))),
    Fault("log-probs summed up to the token", "B37", REPLAY, "sum up to",
          tamper=engine(change=stored(lambda x: [sum(x[: i + 1]) for i in range(len(x))]))),
    Fault("log-probs not finite", "B36", ("rollouts",), "finite", tamper=engine(change=stored(lambda x: [math.nan] * len(x)))),
    Fault("probabilities stored as log-probabilities", "C45", ("rollouts",), "at most 0",
          tamper=engine(change=stored(lambda x: [math.exp(v) for v in x]))),
    Fault("log-probs are no numbers", "B36", ("rollouts",), "must be numbers",
          tamper=engine(change=stored(lambda x: [None] * len(x)))),
    Fault("fewer log-probs than tokens", "B26", ("rollouts",), "per-token fields",
          tamper=engine(change=stored(lambda x: x[:-1]))),
    Fault("re-tokenised text", "C49", REPLAY, "sampled", tamper=engine(change=other_token)),
    Fault("text that is not what the tokens say", "C49", ("rollouts",), "decode",
          tamper=engine(change=lambda p, r: replace(r, text=r.text + "1"))),
    Fault("text that is not what the tokens say, from the third batch on", "C49", ("rollouts",), "decode",
          overrides=("rl.replay.every=10",),
          tamper=engine(change=lambda p, r: replace(r, text=r.text + "1"), from_version=2), updates=2),
    Fault("stored prompt is not the rendered one", "D66", ("rollouts",), "prompt",
          tamper=engine(change=lambda p, r: replace(r, prompt_ids=r.prompt_ids[:-1]))),
    # decoding with a cache
    Fault("position ids off by one in decoding", "issue", ("cache", "replay"), "position ids",
          patch=step_with(lambda i, q, v: (i, q + 1, v))),
    Fault("sliding window of three tokens in decoding", "issue", ("cache", "replay"), "", patch=step_with(window)),
    Fault("cache lines of rows mixed up", "issue", ("cache", "replay"), "", patch=mixed_lines),
    # the trainer's own scoring
    Fault("trainer scores at another temperature", "C44", REPLAY, "the trainer scores at temperature 1",
          patch=made(temperature=1.0)),
    Fault("trainer's scores shifted by one token", "B26", REPLAY, "of the trainer",
          patch=scored(lambda s: replace(s, logp=s.logp.roll(1, 1)))),
    Fault("trainer's scores in another order of rows", "C46", REPLAY, "other rows",
          patch=scored(lambda s: replace(s, logp=s.logp.flip(0)))),
    Fault("dropout is on while scoring", "C46", ("update",), "training mode",
          patch=lambda p: p.set(CausalPolicy, "score", lambda old: lambda self, *a, **k: (self.model.train(), old(self, *a, **k))[1])),
)  # fmt: skip
