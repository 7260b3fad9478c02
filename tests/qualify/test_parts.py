"""The parts of gates, each for itself: spoilt golds, exclusions, calibration, contracts, frozen sets, routers, plain scoring."""

import json
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.flow import Batch, Finish, Group, Outcome, Problem, Reward, Rollout, Verdict
from algorist.policy.model import CausalPolicy
from algorist.problems.load import ProblemReport, ProblemSet
from algorist.qualify import contract, rollouts
from algorist.qualify.calibrate import calibrate, mixed_chance
from algorist.qualify.canary import spoilt
from algorist.qualify.config import ParametersConfig, SignalConfig
from algorist.qualify.exclusions import exclude
from algorist.qualify.naive import Variant, token_logp
from algorist.qualify.policy_gates import freeze, frozen_digest, router_parameters
from algorist.qualify.replay import Bound, measure
from algorist.qualify.routers import Load
from algorist.qualify.signal import Contrast, judge
from algorist.rollout.engine import SamplingPlan
from algorist.rollout.local import LocalEngine
from algorist.train import rows as rows_of
from algorist.verify.single import check


@given(
    gold=st.one_of(
        st.integers(-999, 9999).map(str), st.fractions(max_denominator=50).map(str), st.sampled_from("ABCDE")
    )
)
def test_a_spoilt_gold_is_never_right(gold) -> None:
    kind = "choice" if gold in "ABCDE" else "auto"
    assert check(gold, f"\\boxed{{{spoilt(gold)}}}", kind=kind).verdict is not Outcome.CORRECT


@given(right=st.integers(0, 7), samples=st.integers(2, 7), size=st.integers(2, 7))
def test_the_chance_of_a_mixed_group_is_the_share_of_subsets_that_hold_both_kinds(right, samples, size) -> None:
    if right > samples or size > samples:
        return
    row = [True] * right + [False] * (samples - right)
    subsets = list(combinations(row, size))
    expected = sum(0 < sum(s) < size for s in subsets) / len(subsets)
    assert mixed_chance(right, samples, size) == pytest.approx(expected)


def _rollout(length: int, *, sample: int = 0, finish: Finish = Finish.STOP, budget: int = 100) -> Rollout:
    return Rollout(
        problem_id="p", sample=sample, prompt_ids=(1,), token_ids=(5,) * length, behaviour_logp=(-0.5,) * length,
        policy_version=(0,) * length, loss_mask=(True,) * length, finish=finish, text="", seed=sample,
    )  # fmt: skip


def _group(lengths: list[int], right: list[bool]) -> Group:
    verdicts = [Verdict(verdict=Outcome.CORRECT if x else Outcome.WRONG, reason="x") for x in right]
    return Group(
        problem_id="p",
        rollouts=tuple(_rollout(n, sample=i) for i, n in enumerate(lengths)),
        verdicts=tuple(verdicts),
        rewards=tuple(Reward(value=float(x)) for x in right),
    )


def test_calibration_recommends_the_smallest_budget_that_keeps_the_right_answers() -> None:
    groups = [_group([10, 20, 30, 100], [True, True, False, False]) for _ in range(5)]
    found = calibrate(groups, longest=100, memory_gib=lambda size, budget: size * budget / 100)
    by_budget = {b.response_tokens: b for b in found.budgets}
    assert by_budget[10].success_share == 0.25
    assert by_budget[20].success_share == by_budget[100].success_share == 0.5
    assert by_budget[30].finished_share == 0.75
    assert found.response_tokens == 100, "a budget that cuts a quarter of the responses off is not recommended"
    assert {s.group_size for s in found.sizes} == {2, 4}


def test_the_signal_gate_names_the_dominating_cause() -> None:
    def gate(groups):
        return judge(Contrast.of(groups), minimum=SignalConfig().minimum_useful_share, refuse=True)

    assert gate([_group([3, 3], [True, False])]).passed
    assert "too hard" in gate([_group([3, 4], [False, False])]).cause
    assert "too easy" in gate([_group([3, 4], [True, True])]).cause
    cut = _group([3, 4], [False, False])
    cut = replace(cut, rollouts=tuple(replace(r, finish=Finish.LENGTH) for r in cut.rollouts))
    assert "none ever sampled a stop token" in gate([cut]).cause


def _problems(count: int) -> ProblemSet:
    made = tuple(
        Problem(id=f"{i:016x}", question=f"What is {i} + 1?", gold=str(i + 1), source="s") for i in range(count)
    )
    report = ProblemReport(read=count, train=count - 2, sft=0, heldout=2, unused=0, dropped=())
    return ProblemSet(train=made[:-2], sft=(), heldout=made[-2:], report=report)


def test_exclusions_by_id_by_question_and_by_object_are_applied_and_counted(tmp_path) -> None:
    (tmp_path / "seen.txt").write_text(f"{1:016x}\nwhat is  2 + 1?\n\n")
    (tmp_path / "seen.jsonl").write_text(json.dumps({"question": "What is 3 + 1?"}) + "\n")
    left = exclude(_problems(8), ["seen.txt", "seen.jsonl"], tmp_path)
    assert [p.question for p in left.train] == ["What is 0 + 1?", "What is 4 + 1?", "What is 5 + 1?"]
    assert left.report.dropped_by_reason == {"prior_exposure": 3}
    assert left.report.read == left.report.train + left.report.heldout + len(left.report.dropped)
    assert exclude(left, [], tmp_path) is left


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("{]", "must be a JSON object"),
        ('{"a": 1}', "must hold id or question"),
        (None, "readable list"),
    ],
)
def test_a_useless_exclusion_list_is_refused_with_its_line(tmp_path, text, message) -> None:
    if text is not None:
        (tmp_path / "seen.txt").write_text(text)
    with pytest.raises(InputError, match=message):
        exclude(_problems(8), ["seen.txt"], tmp_path)


def test_contracts_match_whatever_their_provenance_and_name_what_differs() -> None:
    a = {"recipe": {"rl": {"updates": 10, "lr": 1.0}}, "provenance": {"commit": "x"}}
    b = {"recipe": {"rl": {"updates": 12, "lr": 1}}, "provenance": {"commit": "y"}}
    assert contract.differences(a, b) == ["recipe.rl.updates: 10 -> 12"]
    assert not contract.same(a, b)
    assert contract.same(a, {**a, "provenance": {}, "amends": "z"})


def test_freezing_needs_a_pattern_that_names_something_and_leaves_something(policy) -> None:
    with pytest.raises(InputError, match="names none"):
        freeze(policy, ParametersConfig(frozen=("*.router.*",)))
    with pytest.raises(InputError, match="nothing would be trained"):
        freeze(policy, ParametersConfig(frozen=("*",)))


def test_frozen_parameters_leave_the_optimizer_and_their_digest_tells_when_they_move(policy) -> None:
    assert freeze(policy, ParametersConfig(frozen=("*norm*",))) == 5
    assert all("norm" not in name for name, _ in policy.named_parameters())
    before = frozen_digest(policy)
    with torch.no_grad():
        policy.parameters()[0].add_(1.0)
    assert frozen_digest(policy) == before
    with torch.no_grad():
        next(p for n, p in policy.model.named_parameters() if "norm" in n).add_(1.0)
    assert frozen_digest(policy) != before


@pytest.fixture
def mixture(policy) -> CausalPolicy:
    """A mixture of four experts."""
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=policy.model.config.vocab_size, hidden_size=32, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
    )  # fmt: skip
    return CausalPolicy(MixtralForCausalLM(config), policy.tokenizer, dtype="float32", device=torch.device("cpu"))


def test_router_load_is_measured_and_a_router_that_favours_one_expert_shows(mixture) -> None:
    assert len(router_parameters(mixture)) == 2
    load = Load(mixture)
    assert load.figures() == {"router/layers_unread": 2}, "nothing ran yet"
    rows = [((5, 6, 7), tuple(range(3, 12)))]

    def look() -> dict[str, float]:
        for batch in mixture.micro_batches(rows, max_tokens=64):
            mixture.score(batch, rows, temperature=1.0)
        return load.figures()

    even = look()
    assert 1.0 <= even["router/max_over_mean"] <= 2.0
    with torch.no_grad():  # two experts out of four take every token: the most uneven top-2 routing there is
        for name, parameter in mixture.model.named_parameters():
            if name in router_parameters(mixture):
                parameter.zero_()
    uneven = look()
    assert uneven["router/max_over_mean"] == pytest.approx(2.0)
    assert uneven["router/cold_share"] == pytest.approx(0.5)


def test_the_plain_pass_agrees_with_sampler_and_trainer(policy) -> None:
    from algorist.flow import Prompt

    plan = SamplingPlan(temperature=0.7, response_tokens=12, stop_ids=frozenset({1}))
    prompts = [Prompt(problem_id=str(i), token_ids=(5 + i, 6, 7), text="") for i in range(3)]
    groups = LocalEngine(policy).generate(prompts, num_samples=2, plan=plan, policy_version=0, seed=0)
    for r in (r for g in groups for r in g):
        plain = token_logp(policy, r.prompt_ids, r.token_ids, Variant(temperature=0.7))
        assert torch.allclose(plain, torch.tensor(r.behaviour_logp), atol=1e-5)


@given(gaps=st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=12), bound=st.floats(1e-3, 1.0))
def test_a_replay_holds_exactly_where_its_statistic_is_within_its_bound(gaps, bound) -> None:
    rollout = replace(_rollout(len(gaps)), behaviour_logp=tuple(-0.5 for _ in gaps))
    group = replace(_group([len(gaps)], [True]), rollouts=(rollout,))
    rows = rows_of.from_batch(Batch(index=0, policy_version=0, groups=(group,)))
    found = measure(rows, rows.behaviour + torch.tensor([gaps]))
    size = (rows.behaviour + torch.tensor([gaps]) - rows.behaviour).abs().double()
    assert (found.over([Bound(statistic="max", nats=bound)]) == []) is (float(size.max()) <= bound)
    assert found.difference.num_tokens == len(gaps)


def test_a_difference_that_is_not_a_number_holds_no_bound() -> None:
    rows = rows_of.from_batch(Batch(index=0, policy_version=0, groups=(_group([2], [True]),)))
    found = measure(rows, torch.full((1, 2), float("nan")))
    assert len(found.over([Bound(statistic="mean", nats=100.0)])) == 1


def test_a_consistent_batch_has_no_fault_and_each_broken_rule_is_named() -> None:
    good = _rollout(3)
    good = replace(good, token_ids=(5, 5, 2))
    promise = rollouts.Promise(
        problem_ids=("p",), group_size=1, version=0, prompts={"p": (1,)}, stop_ids=frozenset({2}), response_tokens=4,
        vocabulary=10, exact_reward=True,
    )  # fmt: skip

    def fault(rollout: Rollout, *, reward: Reward | None = None, verdict: Outcome = Outcome.CORRECT) -> str:
        group = Group(
            problem_id="p",
            rollouts=(rollout,),
            verdicts=(Verdict(verdict=verdict, reason="x"),),
            rewards=(reward or Reward(value=1.0, parts={"correct": 1.0}),),
        )
        found = rollouts.check(Batch(index=0, policy_version=0, groups=(group,)), promise)
        return "" if found is None else found.code

    assert fault(good) == ""
    assert fault(replace(good, prompt_ids=(1, 1))) == "prompt"
    assert fault(replace(good, policy_version=(0, 0, 1))) == "stale"
    assert fault(replace(good, token_ids=(5, 99, 2))) == "tokens"
    assert fault(replace(good, behaviour_logp=(-1.0, float("inf"), -1.0))) == "logp"
    assert fault(replace(good, finish=Finish.LENGTH)) == "finish"
    assert fault(replace(good, token_ids=(5, 2, 2))) == "finish"
    assert fault(good, reward=Reward(value=0.0, parts={"correct": 0.0})) == "reward"
    assert fault(good, verdict=Outcome.ERROR) == "reward"
    assert fault(good, reward=Reward(value=None)) == "reward"
