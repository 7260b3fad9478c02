"""The rollout store: one Parquet file a batch, `rollouts/batch-000012.parquet`, one row a rollout.

Token ids are the truth and text is derived from them. Equal batches give equal bytes: no time stamps, no verifier
milliseconds, one fixed writer setting. A file is written whole or not at all.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from algorist.errors import InputError
from algorist.flow import Batch, Finish, Group, Outcome, Problem, Reward, Rollout, Verdict
from algorist.record.commit import atomic_write

SCHEMA: Final = pa.schema(
    [
        ("batch", pa.int32()),  # index of the rollout batch
        ("batch_policy_version", pa.int32()),  # applied updates when the batch was begun
        ("group", pa.int32()),  # index of the group in its batch
        ("problem_id", pa.string()),
        ("question", pa.string()),  # null where `write` was not told
        ("gold", pa.string()),  # null where `write` was not told
        ("sample", pa.int32()),  # index in the group
        ("seed", pa.int64()),  # of this row's random stream
        ("prompt_ids", pa.list_(pa.int32())),
        ("token_ids", pa.list_(pa.int32())),  # [T]
        ("behaviour_logp", pa.list_(pa.float32())),  # [T] nats, under the distribution really sampled from
        ("policy_version", pa.list_(pa.int32())),  # [T] applied updates of the weights that sampled the token
        ("loss_mask", pa.list_(pa.bool_())),  # [T]
        ("finish", pa.string()),  # stop, length, error
        ("text", pa.string()),
        ("verdict", pa.string()),  # correct, wrong, unsupported, error
        ("reason", pa.string()),
        ("rule", pa.string()),
        ("method", pa.string()),
        ("extracted", pa.string()),
        ("raw_correct", pa.bool_()),  # null where it was not computed
        ("reward", pa.float64()),  # null where there is none
        ("reward_parts", pa.map_(pa.string(), pa.float64())),
        ("reward_error", pa.string()),
        ("advantage", pa.float64()),  # null where the row left its group, or where none was computed
        ("advantage_tokens", pa.list_(pa.float32())),  # [T] where the method gives each token its own; else null
        ("logp_old", pa.list_(pa.float32())),  # [T] nats, scored by the trainer before its first step on the batch
        ("logp_ref", pa.list_(pa.float32())),  # [T] nats, of the reference policy
        ("value", pa.list_(pa.float32())),  # [T] of the value head, before the first step
    ]
)
"""Columns and their types, in file order."""
SCORES: Final = ("logp_old", "logp_ref", "value")
"""What advantage and loss were made from besides rewards; null where the method needs none, or in files of before."""

PerToken = Sequence[Sequence[Sequence[float] | None]]
"""[P][G][T] numbers of each token; None where a rollout has none."""
Advantages = Sequence[Sequence[float | None]]
"""[P][G] one advantage a rollout; None where the rollout left its group before the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A batch as read back from its file.

    >>> Stored(batch=Batch(index=0, policy_version=0, groups=()), advantages=()).advantages
    ()
    """

    batch: Batch
    """Equal to what was written, but for `Verdict.ms`, which is not stored (0.0)."""
    advantages: tuple[tuple[float | None, ...], ...]
    """[P][G]; None where there is none."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """All columns of all rows, group after group, as `read_rows` gives them."""


def batch_path(folder: Path, index: int) -> Path:
    """The file of a batch.

    >>> batch_path(Path("run/rollouts"), 12).as_posix()
    'run/rollouts/batch-000012.parquet'
    """
    return folder / f"batch-{index:06d}.parquet"


def write(
    path: Path,
    batch: Batch,
    advantages: Advantages | None = None,
    *,
    token_advantages: PerToken | None = None,
    scores: Mapping[str, PerToken] | None = None,
    problems: Mapping[str, Problem] | None = None,
) -> None:
    """Store a batch; temporary file, fsync, rename. A file already there is replaced.

    advantages [P][G], where known; token_advantages [P][G][T] for methods that give each token its own; scores: any of
    SCORES; problems by id. With these a page can show the batch, and an audit compute it again, from the file alone.
    Log-probs are kept as float32, which is what samplers compute. Raises WriteFailed. A batch without rows keeps its columns
    but not its index.
    """
    rows = _rows(batch, advantages, {"advantage_tokens": token_advantages, **(scores or {})})
    for row in rows:
        problem = (problems or {}).get(str(row["problem_id"]))
        row |= {"question": problem.question if problem else None, "gold": problem.gold if problem else None}
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", version="2.6", data_page_version="1.0")
    atomic_write(path, buffer.getvalue())


def read(path: Path) -> Stored:
    """The batch of a file with its advantages, each row under the group it was written in.

    Raises InputError naming the file where it cannot be read, lacks a column, or holds what is no batch.
    """
    rows = read_rows(path)
    heads = list(dict.fromkeys((row["batch"], row["batch_policy_version"]) for row in rows))
    if len(heads) > 1:
        raise InputError(f"{path}: must hold one batch, got {len(heads)}: {[index for index, _ in heads]}")
    index, version = heads[0] if heads else (0, 0)
    by_group: dict[int, list[dict[str, Any]]] = {}
    try:
        for row in rows:
            by_group.setdefault(row["group"], []).append(row)
        groups = tuple(_group(by_group[number]) for number in sorted(by_group))
    except (AssertionError, ValueError, TypeError) as error:
        raise InputError(f"{path}: holds a row that is no rollout: {error}") from error
    return Stored(
        batch=Batch(index=index, policy_version=version, groups=groups),
        advantages=tuple(tuple(row["advantage"] for row in by_group[number]) for number in sorted(by_group)),
        rows=tuple(row for number in sorted(by_group) for row in by_group[number]),
    )


def size(path: Path) -> tuple[int, int]:
    """(rows, values in all columns) that a file claims to hold, from its footer alone: a small file can claim much.

    Raises InputError naming the file where it cannot be read.
    """
    try:
        footer = pq.ParquetFile(path).metadata
    except (OSError, pa.ArrowException) as error:
        words = " ".join(str(error).split())
        raise InputError(f"{path}: must be a Parquet file of rollouts, could not be read ({words})") from error
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    return footer.num_rows, sum(g.column(j).num_values for g in groups for j in range(g.num_columns))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file as plain dicts with the columns of `SCHEMA`, for tables and data frames."""
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        words = " ".join(str(error).split())
        raise InputError(f"{path}: must be a Parquet file of rollouts, could not be read ({words})") from error
    for field in SCHEMA:
        if field.name not in table.schema.names and field.name in SCORES:
            table = table.append_column(field, pa.nulls(len(table), field.type))
        if table.schema.names.count(field.name) != 1:
            raise InputError(f"{path}: must have the column {field.name!r}, once, got {table.schema.names}")
        if table.schema.field(field.name).type != field.type:
            found = table.schema.field(field.name).type
            raise InputError(f"{path}: the column {field.name!r} must hold {field.type}, got {found}")
    rows: list[dict[str, Any]] = table.select(SCHEMA.names).to_pylist()
    for row in rows:
        row["reward_parts"] = dict(row["reward_parts"] or ())
    return rows


def _rows(
    batch: Batch, advantages: Advantages | None, per_token: Mapping[str, PerToken | None]
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    by_group: Advantages = advantages if advantages is not None else [[None] * len(g.rollouts) for g in batch.groups]
    for number, (group, values) in enumerate(zip(batch.groups, by_group, strict=True)):
        for sample, (rollout, verdict, reward, value) in enumerate(
            zip(group.rollouts, group.verdicts, group.rewards, values, strict=True)
        ):
            head = {"batch": batch.index, "batch_policy_version": batch.policy_version, "group": number}
            rows.append(head | _rollout_row(rollout) | _verdict_row(verdict, reward) | {"advantage": value})
            for name, numbers in per_token.items():
                own = None if numbers is None else numbers[number][sample]
                rows[-1][name] = None if own is None else list(own)
    return rows


def _rollout_row(rollout: Rollout) -> dict[str, object]:
    return {
        "problem_id": rollout.problem_id,
        "sample": rollout.sample,
        "seed": rollout.seed,
        "prompt_ids": list(rollout.prompt_ids),
        "token_ids": list(rollout.token_ids),
        "behaviour_logp": list(rollout.behaviour_logp),
        "policy_version": list(rollout.policy_version),
        "loss_mask": list(rollout.loss_mask),
        "finish": str(rollout.finish),
        "text": rollout.text,
    }


def _verdict_row(verdict: Verdict, reward: Reward) -> dict[str, object]:
    return {
        "verdict": str(verdict.verdict),
        "reason": verdict.reason,
        "rule": verdict.rule,
        "method": verdict.method,
        "extracted": verdict.extracted,
        "raw_correct": verdict.raw_correct,
        "reward": reward.value,
        "reward_parts": sorted(reward.parts.items()),
        "reward_error": reward.error,
    }


def _group(rows: Sequence[Mapping[str, Any]]) -> Group:
    return Group(
        problem_id=rows[0]["problem_id"],
        rollouts=tuple(_rollout(row) for row in rows),
        verdicts=tuple(
            Verdict(
                verdict=Outcome(row["verdict"]),
                reason=row["reason"],
                rule=row["rule"],
                method=row["method"],
                extracted=row["extracted"],
                raw_correct=row["raw_correct"],
            )
            for row in rows
        ),
        rewards=tuple(Reward(value=r["reward"], parts=r["reward_parts"], error=r["reward_error"]) for r in rows),
    )


def _rollout(row: Mapping[str, Any]) -> Rollout:
    return Rollout(
        problem_id=row["problem_id"],
        sample=row["sample"],
        prompt_ids=tuple(row["prompt_ids"]),
        token_ids=tuple(row["token_ids"]),
        behaviour_logp=tuple(row["behaviour_logp"]),
        policy_version=tuple(row["policy_version"]),
        loss_mask=tuple(row["loss_mask"]),
        finish=Finish(row["finish"]),
        text=row["text"],
        seed=row["seed"],
    )
