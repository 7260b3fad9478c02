"""A stored batch comes back as it was, and equal batches have equal bytes."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorist.errors import InputError
from algorist.flow import Batch, Finish, Group, Outcome, Problem, Reward, Rollout, Verdict
from algorist.record import rollouts as R

words = st.text(max_size=12)
float32 = st.floats(-50, 0, width=32)


@st.composite
def rollouts(draw: st.DrawFn, problem_id: str, sample: int) -> Rollout:
    T = draw(st.integers(0, 5))
    return Rollout(
        problem_id=problem_id,
        sample=sample,
        prompt_ids=tuple(draw(st.lists(st.integers(0, 2**31 - 1), max_size=4))),
        token_ids=tuple(draw(st.lists(st.integers(0, 200_000), min_size=T, max_size=T))),
        behaviour_logp=tuple(draw(st.lists(float32, min_size=T, max_size=T))),
        policy_version=tuple(draw(st.lists(st.integers(0, 99), min_size=T, max_size=T))),
        loss_mask=tuple(draw(st.lists(st.booleans(), min_size=T, max_size=T))),
        finish=draw(st.sampled_from(Finish)),
        text=draw(words),
        seed=draw(st.integers(0, 2**53 - 1)),
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, list[list[float | None]]]:
    groups = []
    for p in range(draw(st.integers(1, 3))):
        G = draw(st.integers(1, 3))
        rewards = [
            Reward(
                value=v,
                parts=draw(st.dictionaries(words, st.floats(-1, 1), max_size=2)),
                error="" if v is not None else "late",
            )
            for v in draw(st.lists(st.none() | st.floats(-2, 2), min_size=G, max_size=G))
        ]
        verdicts = [
            Verdict(
                verdict=draw(st.sampled_from(Outcome)),
                reason=draw(words),
                rule=draw(words),
                method=draw(words),
                extracted=draw(words),
                raw_correct=draw(st.none() | st.booleans()),
            )
            for _ in range(G)
        ]
        rows = tuple(draw(rollouts(f"p{p}", g)) for g in range(G))
        groups.append(Group(problem_id=f"p{p}", rollouts=rows, verdicts=tuple(verdicts), rewards=tuple(rewards)))
    advantages = [
        draw(st.lists(st.none() | st.floats(-3, 3), min_size=len(g.rollouts), max_size=len(g.rollouts))) for g in groups
    ]
    return Batch(
        index=draw(st.integers(0, 999)), policy_version=draw(st.integers(0, 99)), groups=tuple(groups)
    ), advantages


@settings(max_examples=60, deadline=None)
@given(batches())
def test_what_is_written_is_what_is_read_and_bytes_are_a_function_of_it(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Batch, list[list[float | None]]]
) -> None:
    batch, advantages = drawn
    folder = tmp_path_factory.mktemp("rollouts")
    R.write(folder / "a.parquet", batch, advantages)
    R.write(folder / "b.parquet", batch, advantages)
    stored = R.read(folder / "a.parquet")
    assert stored.batch == batch
    assert stored.advantages == tuple(map(tuple, advantages))
    assert (folder / "a.parquet").read_bytes() == (folder / "b.parquet").read_bytes()


def one(problem_id: str = "p", ms: float = 0.0) -> Batch:
    rollout = Rollout(
        problem_id=problem_id,
        sample=0,
        prompt_ids=(1, 48),
        token_ids=(52, 50, 2),
        behaviour_logp=(-0.1, -0.7, -0.2),
        policy_version=(3, 3, 3),
        loss_mask=(True, True, False),
        finish=Finish.STOP,
        text="42",
        seed=7,
    )
    verdict = Verdict(verdict=Outcome.CORRECT, reason="equal", extracted="42", raw_correct=True, ms=ms)
    reward = Reward(value=0.9, parts={"length": -0.1, "correct": 1.0})
    return Batch(
        index=12,
        policy_version=3,
        groups=(Group(problem_id=problem_id, rollouts=(rollout,), verdicts=(verdict,), rewards=(reward,)),),
    )


def test_columns_and_types_are_the_documented_ones(tmp_path: Path) -> None:
    R.write(R.batch_path(tmp_path, 12), one(), [[0.5]], token_advantages=[[[0.5, 0.25, 0.0]]])
    file = tmp_path / "batch-000012.parquet"
    promised = {"problem_id", "sample", "token_ids", "behaviour_logp", "policy_version", "loss_mask", "finish", "text"}
    promised |= {"verdict", "reason", "raw_correct", "reward", "reward_parts", "advantage"}
    schema = pq.read_schema(file)
    assert promised <= set(schema.names)
    assert schema.field("behaviour_logp").type.value_type == pa.float32()
    row = R.read_rows(file)[0]
    assert row["reward_parts"] == {"correct": 1.0, "length": -0.1}
    assert row["behaviour_logp"] == [float(np.float32(x)) for x in (-0.1, -0.7, -0.2)]
    assert (row["batch"], row["group"], row["advantage_tokens"], row["finish"]) == (12, 0, [0.5, 0.25, 0.0], "stop")


def test_question_and_gold_are_kept_where_they_are_given(tmp_path: Path) -> None:
    problem = Problem(id="p", question="6 * 7?", gold="42", source="arithmetic")
    R.write(tmp_path / "a", one(), problems={"p": problem})
    R.write(tmp_path / "b", one())
    assert [(r["question"], r["gold"]) for r in R.read_rows(tmp_path / "a")] == [("6 * 7?", "42")]
    assert [(r["question"], r["gold"]) for r in R.read_rows(tmp_path / "b")] == [(None, None)]
    assert R.read(tmp_path / "a").batch == R.read(tmp_path / "b").batch


def test_verifier_milliseconds_leave_no_trace_in_the_bytes(tmp_path: Path) -> None:
    R.write(tmp_path / "a", one(ms=0.3), [[0.5]])
    R.write(tmp_path / "b", one(ms=9.1), [[0.5]])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_advantages_must_match_the_groups(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        R.write(tmp_path / "a", one(), [[0.5, 0.5]])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "text", "flip"])
def test_a_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "batch-000012.parquet"
    R.write(path, one())
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-9], "text": b"hello", "flip": data[:-20] + b"\xff" * 12 + data[-8:]}[damage])
    with pytest.raises(InputError, match=r"batch-000012\.parquet: must be a Parquet file of rollouts"):
        R.read(path)


def test_a_file_without_a_column_names_the_column(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    R.write(path, one())
    pq.write_table(pq.read_table(path).drop_columns(["reward"]), path)
    with pytest.raises(InputError, match="must have the column 'reward', once"):
        R.read(path)
