"""Verifier and reward: what responses are found to be, and what that is worth."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

from algorist.flow import Outcome, Problem, Reward, Rollout, Verdict
from algorist.stages.task import Task
from injected.tools import Fault, Patch, reward, says, verifier

CANARY, ROLLOUTS = ("verifier_canary",), ("rollouts",)
RIGHT, WRONG, FAILED = Outcome.CORRECT, Outcome.WRONG, Outcome.ERROR
_EXACT = "right"


def flipped(v: Verdict) -> Verdict:
    return replace(v, verdict=WRONG if v.verdict is RIGHT else RIGHT)


def graded(change: Callable[[list[Verdict]], object], after: int = 0) -> Callable[[Patch], None]:
    """Verdicts are changed on their way from the verifier to the batch: the verifier itself is sound."""
    return _task("grade", change, after)


def paid(change: Callable[[list[Reward]], object], after: int = 0) -> Callable[[Patch], None]:
    return _task("pay", change, after)


def _task(name: str, change: Callable, after: int) -> Callable[[Patch], None]:
    def patch(p: Patch) -> None:
        calls = [0]

        def make(old):
            def answer(self, problems, rollouts, *rest):
                found = old(self, problems, rollouts, *rest)
                if len(rollouts) != 72:  # not a training batch
                    return found
                calls[0] += 1
                return change(found) if calls[0] > after else found

            return answer

        p.set(Task, name, make)

    return patch


def other_golds(p: Patch) -> None:
    def make(old):
        def grade(self, problems, rollouts):
            shown = [*problems[6:], *problems[:6]] if len(rollouts) == 72 else problems
            return old(self, shown, rollouts)

        return grade

    p.set(Task, "grade", make)


def failures_paid(p: Patch) -> None:
    """The verifier fails on every fourth row, and those are paid 0."""
    timeout = {"verdict": FAILED, "reason": "timeout"}
    graded(lambda v: [replace(x, **timeout) if i % 4 == 0 else x for i, x in enumerate(v)])(p)
    paid(lambda r: [Reward(value=0.0, parts={"correct": 0.0}) if x.value is None else x for x in r])(p)


def some(share: float, change: Callable[[Verdict], Verdict]):
    made = random.Random(0)
    return lambda verdicts, items: [change(v) if made.random() < share else v for v in verdicts]


def by_length(verdicts, items):
    return [replace(v, verdict=RIGHT) if len(i.response) > 9 else v for v, i in zip(verdicts, items, strict=True)]


def every_second(verdicts, items):
    return [
        replace(v, verdict=RIGHT if len(i.response) % 2 else v.verdict) for v, i in zip(verdicts, items, strict=True)
    ]


def raising(*_: object) -> object:
    raise ZeroDivisionError("division by zero")


def fail(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    raise KeyError("answer")


def leave(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    raise SystemExit(3)


def is_right(v: Verdict) -> float:
    return float(v.verdict is RIGHT)


def sometimes(problem: Problem, rollout: Rollout, verdict: Verdict) -> float:
    if rollout.sample == 1:
        raise ValueError("one of six")
    return is_right(verdict)


_CHANCE = random.Random(0)
TIMEOUT = says(FAILED, "timeout")

FAULTS = (
    # the verifier
    Fault("verifier rejects everything", "D58", CANARY, "misjudged", tamper=verifier(says(WRONG))),
    Fault("verifier accepts everything", "D55", CANARY, "misjudged", tamper=verifier(says(RIGHT))),
    Fault("verifier fails on everything", "D59", CANARY, "misjudged", tamper=verifier(TIMEOUT)),
    Fault("verifier turns every verdict round", "D61", CANARY, "misjudged",
          tamper=verifier(lambda v, i: [flipped(x) for x in v])),
    Fault("verifier is wrong on one answer in twenty", "D62", CANARY, "misjudged", tamper=verifier(some(0.05, flipped))),
    Fault("verifier pays by length", "D61", CANARY, "misjudged", tamper=verifier(every_second)),
    Fault("verifier accepts whatever is long", "hacking", CANARY, "misjudged", tamper=verifier(by_length)),
    Fault("verifier raises", "D63", CANARY, "ZeroDivisionError", tamper=verifier(raising)),
    Fault("verifier answers with too few verdicts", "D63", CANARY, "one Verdict for each",
          tamper=verifier(lambda v, i: v[:-1])),
    Fault("verifier raises in the first batch", "D63", ROLLOUTS, "ZeroDivisionError", tamper=verifier(raising, after=1)),
    Fault("verifier answers with booleans in the first batch", "D63", ROLLOUTS, "a bool",
          tamper=verifier(lambda v, i: [x.verdict is RIGHT for x in v], after=1)),
    Fault("verifier accepts everything once training begins", "D55", ROLLOUTS, "a second look says",
          tamper=verifier(says(RIGHT), after=1)),
    Fault("verifier answers one row late", "A2", ROLLOUTS, "a second look says",
          tamper=verifier(lambda v, i: [*v[1:], v[0]], after=1)),
    Fault("verifier dies in the middle of a run", "D59", ("rollouts", "watch"), "the verifier",
          tamper=verifier(TIMEOUT, after=5), updates=2),
    # verdicts on their way
    Fault("verdicts at random", "reliability C", ROLLOUTS, "second look", patch=graded(lambda v: some(0.5, flipped)(v, ()))),
    Fault("verdicts of the next row", "A2", ROLLOUTS, "second look", patch=graded(lambda v: [*v[1:], v[0]])),
    Fault("verdicts of the next problem, from the third batch on", "A2", ROLLOUTS, "second look",
          patch=graded(lambda v: [*v[6:], *v[:6]], after=2), updates=2),
    Fault("one verdict of 72 is wrong", "D62", ROLLOUTS, "second look",
          patch=graded(lambda v: [flipped(x) if i == 40 else x for i, x in enumerate(v)])),
    Fault("golds of other problems", "A2", ROLLOUTS, "second look", patch=other_golds),
    Fault("one verdict missing", "D63", ROLLOUTS, "one Verdict for each", patch=graded(lambda v: v[:-1])),
    # rewards on their way
    Fault("rewards of the next row", "A2", ROLLOUTS, "must be paid", patch=paid(lambda r: [*r[1:], r[0]])),
    Fault("rewards turned round", "B33", ROLLOUTS, "sum of its named parts",
          patch=paid(lambda r: [replace(x, value=1 - x.value) for x in r])),
    Fault("rewards a hundredfold", "A11", ROLLOUTS, "sum of its named parts",
          patch=paid(lambda r: [replace(x, value=100 * x.value) if x.value else x for x in r])),
    Fault("a bonus without a name", "D69", ROLLOUTS, "sum of its named parts",
          patch=paid(lambda r: [replace(x, value=x.value + 0.01) for x in r])),
    Fault("rewards at random", "reliability C", ROLLOUTS, "must be paid",
          patch=paid(lambda r: [Reward(value=_CHANCE.random()) for _ in r])),
    Fault("verifier failures are paid 0", "D63", ROLLOUTS, "no reward",
          patch=failures_paid),
    Fault("a reward that is no number", "D63", ROLLOUTS, "must be finite",
          patch=paid(lambda r: [replace(x, value=math.nan) if i == 3 else x for i, x in enumerate(r)])),
    Fault("a missing reward without a reason", "D63", ROLLOUTS, "must say why",
          patch=paid(lambda r: [Reward(value=None) if i == 3 else x for i, x in enumerate(r)])),
    Fault("rewards as plain floats", "D63", ROLLOUTS, "a float", patch=paid(lambda r: [x.value for x in r])),
    # reward functions
    Fault("reward is constant", "D67", CANARY, "pays", tamper=reward(lambda p, r, v: 1.0)),
    Fault("reward has the wrong sign", "B33", CANARY, "pays", tamper=reward(lambda p, r, v: -is_right(v))),
    Fault("reward at random", "reliability C", CANARY, "pays", tamper=reward(lambda p, r, v: _CHANCE.random())),
    Fault("reward is the length", "hacking", CANARY, "pays", tamper=reward(lambda p, r, v: float(len(r.token_ids)))),
    Fault("length costs more than a right answer gives", "D69", CANARY, "empty response",
          tamper=reward(lambda p, r, v: is_right(v) - len(r.token_ids))),
    Fault("reward looks for the gold anywhere", "hacking", CANARY, "beside another answer",
          tamper=reward(lambda p, r, v: float(p.gold in r.text))),
    Fault("reward prefers some wrong answers", "hacking", CANARY, "pays",
          tamper=reward(lambda p, r, v: 0.5 if v.verdict is RIGHT else 0.9 if r.text else 0.1)),
    Fault("reward raises", "D63", CANARY, "no value", tamper=reward(fail)),
    Fault("reward raises on one row of six", "D63", ("watch", "rollouts"), "", tamper=reward(sometimes), updates=2),
    Fault("reward ends the process", "D63", CANARY, "SystemExit", tamper=reward(leave)),
    Fault("reward is not a number", "D63", CANARY, "no value", tamper=reward(lambda p, r, v: float("nan"))),
    Fault("reward is infinite", "D63", CANARY, "no value", tamper=reward(lambda p, r, v: math.inf)),
    Fault("reward is a word", "D63", CANARY, "got str", tamper=reward(lambda p, r, v: "yes")),
    Fault("reward is nothing", "D63", CANARY, "got NoneType", tamper=reward(lambda p, r, v: None)),
    Fault("answers looked for in a place where they never stand", "D57, D58", ("signal", "verifier_canary"), "",
          overrides=("prompt.answer_format=hashes",)),
)  # fmt: skip
