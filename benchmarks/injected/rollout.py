"""Groups, rows and endings: what an engine answers, and in which shape."""

from dataclasses import replace

from algorist.flow import Finish
from injected.tools import Fault, Patch, cut, engine, plan

ROLLOUTS = ("rollouts",)


def whole(change):
    return engine(groups=change)


def row(change, start: int = 0):
    return engine(change=lambda p, r: change(r), from_version=start)


def interleaved(groups):
    flat = [r for i in range(len(groups[0])) for r in (g[i] for g in groups)]
    size = len(groups[0])
    return [flat[i * size : (i + 1) * size] for i in range(len(groups))]


def relabelled(groups):
    """The same, and every row says that it belongs where it lies."""
    return [
        [replace(r, problem_id=g[0].problem_id, prompt_ids=g[0].prompt_ids, sample=j) for j, r in enumerate(mixed)]
        for g, mixed in zip(groups, interleaved(groups), strict=True)
    ]


def copies(groups):
    return [[replace(g[0], sample=j, seed=r.seed) for j, r in enumerate(g)] for g in groups]


def likelier_of_two(p: Patch) -> None:
    """Each row is the likelier of two draws."""
    from algorist.rollout.local import LocalEngine

    def make(old):
        def generate(self, prompts, **k):
            first = old(self, prompts, **k)
            if not k.get("salt", "").startswith("batch"):
                return first
            second = old(self, prompts, **{**k, "seed": k["seed"] + 1})
            return [
                [
                    a if sum(a.behaviour_logp) >= sum(b.behaviour_logp) else replace(b, seed=a.seed)
                    for a, b in zip(g, h, strict=True)
                ]
                for g, h in zip(first, second, strict=True)
            ]

        return generate

    p.set(LocalEngine, "generate", make)


def asked_again(p: Patch) -> None:
    """Every batch is the first one again."""
    from algorist.rollout.local import LocalEngine

    def make(old):
        return lambda self, prompts, **k: old(
            self, prompts, **({**k, "salt": "batch-0"} if k.get("salt", "").startswith("batch") else k)
        )

    p.set(LocalEngine, "generate", make)


def fails(error: Exception):
    def change(groups):
        raise error

    return engine(groups=change, from_version=1)


def half_errors(r):
    return replace(cut(r, 0), text="", finish=Finish.ERROR) if r.sample % 2 else r


FAULTS = (
    # groups
    Fault("prompts interleaved", "A2", ROLLOUTS, "holds a rollout of problem", tamper=whole(interleaved)),
    Fault("prompts interleaved, rows relabelled", "A2", ROLLOUTS, "random stream", tamper=whole(relabelled)),
    Fault("groups in another order", "A2", ROLLOUTS, "in the order of the prompts", tamper=whole(lambda g: g[::-1])),
    Fault("two rows of two problems change places", "A2", ROLLOUTS, "holds a rollout of problem",
          tamper=whole(lambda g: [[g[1][0], *g[0][1:]], [g[0][0], *g[1][1:]], *g[2:]])),
    Fault("a group too small", "A1", ROLLOUTS, "has 5", tamper=whole(lambda g: [g[0][:-1], *g[1:]])),
    Fault("a group too small, another too large", "A1", ROLLOUTS, "has 5",
          tamper=whole(lambda g: [g[0][:-1], [*g[1], replace(g[1][0], sample=6)], *g[2:]])),
    Fault("a group missing", "A15", ROLLOUTS, "got 11 groups", tamper=whole(lambda g: g[:-1])),
    Fault("an empty group", "E85", ROLLOUTS, "has 0", tamper=whole(lambda g: [[], *g[1:]])),
    Fault("nothing sampled", "E85", ROLLOUTS, "got 0 groups", tamper=whole(lambda g: [])),
    Fault("no list at all", "E84", ROLLOUTS, "NoneType", tamper=whole(lambda g: None)),
    Fault("rows without groups", "A1", ROLLOUTS, "no list of lists", tamper=whole(lambda g: [r for x in g for r in x])),
    Fault("the first response copied over its group", "A3", ("replay",), "copied", tamper=whole(copies)),
    Fault("the likelier of two draws kept", "selection", ("replay",), "selected", patch=likelier_of_two),
    Fault("samples numbered twice", "A2", ROLLOUTS, "numbered", tamper=row(lambda r: replace(r, sample=0))),
    Fault("one random stream for a whole group", "A3", ROLLOUTS, "random stream", tamper=row(lambda r: replace(r, seed=7))),
    Fault("seeds of another run", "E75", ROLLOUTS, "random stream", tamper=row(lambda r: replace(r, seed=r.seed + 1))),
    Fault("the first batch sampled again", "E76", ROLLOUTS, "random stream", patch=asked_again, updates=1),
    # versions, ids, masks
    Fault("stale policy version stamps", "C53", ROLLOUTS, "version",
          tamper=row(lambda r: replace(r, policy_version=tuple(v - 1 for v in r.policy_version)))),
    Fault("token ids outside the vocabulary", "C49", ROLLOUTS, "token ids must lie",
          tamper=row(lambda r: replace(r, token_ids=(9999, *r.token_ids[1:])))),
    Fault("negative token ids from the third batch on", "A10", ROLLOUTS, "token ids must lie",
          tamper=row(lambda r: replace(r, token_ids=(-1, *r.token_ids[1:])), 2), updates=2),
    Fault("token ids are fractions", "C49", ROLLOUTS, "whole numbers",
          tamper=row(lambda r: replace(r, token_ids=tuple(map(float, r.token_ids))))),
    Fault("loss mask lacks the first token", "B27", ROLLOUTS, "open to training",
          tamper=row(lambda r: replace(r, loss_mask=(False, *r.loss_mask[1:])))),
    Fault("loss mask lacks the last token, from the third batch on", "B23", ROLLOUTS, "open to training",
          tamper=row(lambda r: replace(r, loss_mask=(*r.loss_mask[:-1], False)), 2), updates=2),
    Fault("everything masked", "B21", ROLLOUTS, "open to training",
          tamper=row(lambda r: replace(r, loss_mask=(False,) * len(r.loss_mask)))),
    # stopping and lengths
    Fault("sampler does not know the stop id", "B24", ROLLOUTS, "stop id", tamper=engine(plan=plan(stop_ids=frozenset({3})))),
    Fault("finish reason guessed from the length", "B24", ROLLOUTS, "finish",
          tamper=row(lambda r: replace(r, finish=Finish.LENGTH))),
    Fault("truncated responses count as finished", "B24", ROLLOUTS, "must end with a stop id",
          tamper=engine(plan=plan(response_tokens=1), change=lambda p, r: replace(r, finish=Finish.STOP))),
    Fault("finish reason as a word", "B24", ROLLOUTS, "stop, length, error", tamper=row(lambda r: replace(r, finish="stop"))),
    Fault("stop token dropped from responses", "B23", ROLLOUTS, "must end with a stop id",
          tamper=row(lambda r: cut(r, -1) if r.finish is Finish.STOP and len(r.token_ids) > 1 else r)),
    Fault("responses go on after the stop token", "B30", ROLLOUTS, "after a stop id",
          tamper=row(lambda r: replace(r, token_ids=r.token_ids * 2, behaviour_logp=r.behaviour_logp * 2,
                                       policy_version=r.policy_version * 2, loss_mask=r.loss_mask * 2))),
    Fault("sampler has a smaller budget", "D66", ROLLOUTS, "whole budget", tamper=engine(plan=plan(response_tokens=1))),
    Fault("empty responses", "A10", ROLLOUTS, "0 tokens", tamper=row(lambda r: replace(cut(r, 0), text=""))),
    Fault("budget too small for any answer: all truncated", "B20, D66", ("signal", "cache"), "cut off",
          overrides=("rl.sampling.response_tokens=1",)),
    Fault("engine fails on every row", "E84", ("signal",), "the engine fails",
          tamper=row(lambda r: replace(cut(r, 0), text="", finish=Finish.ERROR))),
    Fault("engine fails on every second row", "D63", ("watch",), "no reward", tamper=row(half_errors), updates=2),
    Fault("engine raises in the second batch", "E84", ROLLOUTS, "CUDA error",
          tamper=fails(RuntimeError("CUDA error: out of memory")), updates=1),
    Fault("engine times out in the second batch", "E84", ROLLOUTS, "TimeoutError",
          tamper=fails(TimeoutError("no answer")), updates=1),
)  # fmt: skip
