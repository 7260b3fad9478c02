"""Problems to graded groups: rollouts of the present policy, their verdicts and rewards.

Engine, verifier and reward are the places where other people's code answers. Whatever comes back in another shape than
was asked for ends the run here, in words, before anything is graded or trained.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from algorist.digest import JSON
from algorist.errors import AlgoristError, GateFailed
from algorist.flow import Batch, Group, Problem, Reward, Rollout, Verdict
from algorist.patience import Overdue, patience
from algorist.record.ledger import EventKind, Ledger
from algorist.rollout.engine import RolloutEngine, SamplingPlan
from algorist.stages.task import Task

Row = TypeVar("Row")


@final
class Unanswered(GateFailed):
    """Engine, verifier or reward did not answer as they were asked. Nothing of the batch was trained."""

    def payload(self) -> dict[str, JSON]:
        """What the ledger keeps: a broken rule of the gate `rollouts`."""
        words: dict[str, JSON] = {
            "cause": str(self),
            "remedy": "",
            "unit": "broken rule",
            "figures": {"code": "answer"},
        }
        return {"name": "rollouts", "value": 1, "threshold": 0, "verdict": "failed", "passed": False, **words}


@contextlib.contextmanager
def told(ledger: Ledger, version: int) -> Iterator[None]:
    """Inside, an Unanswered is an event on the ledger before it goes on."""
    try:
        yield
    except Unanswered as error:
        ledger.append(EventKind.GATE, policy_version=version, payload=error.payload())
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """A batch fresh from the engine, with what it took."""

    batch: Batch
    rollout_s: float
    verify_s: float


def sample_batch(
    problems: Sequence[Problem],
    task: Task,
    engine: RolloutEngine,
    plan: SamplingPlan,
    *,
    index: int,
    group_size: int,
    version: int,
    seed: int,
    look: Callable[[Sequence[Sequence[Rollout]]], None],
) -> Sampled:
    """Groups of batch `index`. `look` sees the rollouts before they are graded, and may raise.

    Raises Unanswered where engine, verifier or reward fail as a whole or answer in another shape than was asked for.
    """
    started = time.monotonic()
    prompts = [task.prompts[p.id] for p in problems]
    where = f"batch {index}"
    groups = attempt(
        "the engine must answer every prompt",
        where,
        lambda: engine.generate(
            prompts, num_samples=group_size, plan=plan, policy_version=version, seed=seed, salt=f"batch-{index}"
        ),
    )
    sampled = time.monotonic()
    whole_groups(groups, problems, group_size, where)
    look(groups)
    looked = time.monotonic()
    verdicts, rewards = judged(task, problems, groups, where)
    made = tuple(
        Group(
            problem_id=problem.id,
            rollouts=tuple(groups[i]),
            verdicts=tuple(verdicts[i * group_size : (i + 1) * group_size]),
            rewards=tuple(rewards[i * group_size : (i + 1) * group_size]),
        )
        for i, problem in enumerate(problems)
    )
    batch = Batch(index=index, policy_version=version, groups=made)
    return Sampled(batch=batch, rollout_s=sampled - started, verify_s=time.monotonic() - looked)


def judged(
    task: Task, problems: Sequence[Problem], groups: Sequence[Sequence[Rollout]], where: str
) -> tuple[list[Verdict], list[Reward]]:
    """A verdict and a reward for each rollout, group after group. Raises Unanswered where there is not one of each."""
    rollouts = [r for group in groups for r in group]
    asked = [p for p, group in zip(problems, groups, strict=True) for _ in group]
    verdicts = verdicts_of(task, asked, rollouts, where)
    rewards = attempt("the reward must pay every verdict", where, lambda: task.pay(asked, rollouts, verdicts))
    one_each("the reward", Reward, rewards, rollouts, where)
    return verdicts, rewards


def verdicts_of(task: Task, asked: Sequence[Problem], rollouts: Sequence[Rollout], where: str) -> list[Verdict]:
    """A verdict for each rollout, in order. Raises Unanswered where there is not one of each."""
    must = "the verifier must judge every response"
    verdicts = attempt(must, where, lambda: task.grade(asked, rollouts), patience_s(len(rollouts)))
    one_each("the verifier", Verdict, verdicts, rollouts, where)
    return verdicts


def patience_s(responses: int) -> float:
    """Seconds that judging so many responses may take; a proof's own deadline ends it long before."""
    return 60.0 + 20.0 * responses


def attempt(must: str, where: str, call: Callable[[], Row], seconds: float | None = None) -> Row:
    """The result of other people's code; whatever it raises becomes an Unanswered that names it, and so does a hang."""
    try:
        if seconds is None:
            return call()
        with patience(
            seconds, f"rollouts: {where}: {must}: no answer within {seconds:g} s. It hangs; look where, and restart it."
        ):
            return call()
    except AlgoristError:
        raise
    except Overdue as overdue:
        raise Unanswered(str(overdue)) from overdue
    except Exception as error:
        raise Unanswered(
            f"rollouts: {where}: {must}: it ended with {type(error).__name__}: {str(error)[:300]}. Repair it; nothing of this "
            "batch was trained, and algorist resume RUN goes on from the last checkpoint."
        ) from error


def whole_groups(groups: object, problems: Sequence[Problem], size: int, where: str) -> None:
    """As many groups as prompts, in their order, each of `size` rollouts of its own problem. Raises Unanswered."""
    must = f"rollouts: {where}: the engine must answer {len(problems)} prompts with {size} rollouts each, in the order of the prompts"
    remedy = "Group rows by problem id; a row that failed stays in its group, with Finish.ERROR."
    if not isinstance(groups, Sequence) or any(not isinstance(g, Sequence) for g in groups):
        raise Unanswered(f"{must}: got no list of lists of rollouts, but {_shape(groups)}. {remedy}")
    if len(groups) != len(problems):
        raise Unanswered(f"{must}: got {len(groups)} groups. {remedy}")
    for i, (problem, group) in enumerate(zip(problems, groups, strict=True)):
        strange = next((type(r).__name__ for r in group if not isinstance(r, Rollout)), None)
        if strange is not None:
            raise Unanswered(f"{must}: group {i} holds a {strange} instead of a rollout. {remedy}")
        if len(group) != size:
            raise Unanswered(f"{must}: group {i} (problem {problem.id}) has {len(group)}. {remedy}")
        other = next((r.problem_id for r in group if r.problem_id != problem.id), None)
        if other is not None:
            raise Unanswered(f"{must}: group {i} (problem {problem.id}) holds a rollout of problem {other}. {remedy}")


def one_each(who: str, kind: type, got: object, rollouts: Sequence[Rollout], where: str) -> None:
    """One answer of the right kind for each rollout. Raises Unanswered."""
    must = f"rollouts: {where}: {who} must give one {kind.__name__} for each of the {len(rollouts)} responses, in their order"
    if not isinstance(got, Sequence) or isinstance(got, str) or len(got) != len(rollouts):
        raise Unanswered(f"{must}: got {_shape(got)}. Repair {who}.")
    strange = next((type(x).__name__ for x in got if not isinstance(x, kind)), None)
    if strange is not None:
        raise Unanswered(f"{must}: got a {strange} among them. Repair {who}.")


def _shape(got: object) -> str:
    if isinstance(got, Sequence) and not isinstance(got, str):
        return f"{len(got)} of them" if got else "an empty list"
    return type(got).__name__
