"""Rows to problems: jsonl, Parquet, local Hugging Face data sets, reasoning-gym. Every complaint names its row."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from algorist.digest import content_id
from algorist.errors import InputError
from algorist.flow import Problem
from algorist.problems.config import DatasetsConfig, JsonlConfig, ParquetConfig, ReasoningGymConfig
from algorist.seeds import derive

_SHOWN = 10
"""Wrong rows named in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """One row or problem that is not used, and why."""

    reason: str
    """A short code: no_question, no_gold, duplicate, conflicting_gold, gold_refused, ..."""
    where: str
    """file:line, or the source's name."""
    detail: str = ""
    """In words, where the code does not say it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What one source gave."""

    problems: tuple[tuple[Problem, str], ...]
    """Each problem with the place it came from."""
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as the file has it."""

    where: str
    """file:line or file: row n."""
    value: Mapping[str, Any]
    """Field -> value."""


class _BadRow(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        self.reason, self.detail = reason, detail


def read_file(cfg: JsonlConfig, base_dir: Path) -> Read:
    """All problems of a jsonl, Parquet or datasets source.

    Raises InputError for a file that is missing or malformed, for an id given twice and, with on_bad_row: refuse, for
    rows without a usable question or answer; the first ten are named.
    """
    path = base_dir / cfg.path
    rows = raw_rows(cfg, path)
    problems: list[tuple[Problem, str]] = []
    dropped: list[Dropped] = []
    ids: dict[str, str] = {}
    num_read = 0
    for num_read, row in enumerate(rows, start=1):
        if num_read == 1 and isinstance(cfg, ParquetConfig | DatasetsConfig):
            _columns_exist(path, list(row.value), cfg)
        try:
            problems.append((_problem(row, cfg, ids, path.name), row.where))
        except _BadRow as bad:
            dropped.append(Dropped(reason=bad.reason, where=row.where, detail=bad.detail))
        if num_read == cfg.limit:
            break
    if num_read == 0:
        raise InputError(f"{path}: holds no rows. Give a file with at least one problem.")
    if dropped and cfg.on_bad_row == "refuse":
        lines = "\n".join(f"{row.where}: {row.detail}" for row in dropped[:_SHOWN])
        more = f"\n... and {len(dropped) - _SHOWN} more" if len(dropped) > _SHOWN else ""
        raise InputError(f"{lines}{more}\nCorrect the rows, or set on_bad_row: drop to leave them out, counted.")
    return Read(problems=tuple(problems), dropped=tuple(dropped))


def raw_rows(cfg: JsonlConfig, path: Path) -> Iterator[Row]:
    """The rows of a file, unread. Raises InputError for a file that is missing or malformed."""
    if not path.exists():
        raise InputError(f"{path}: no such file. problems.source.path is relative to the recipe's folder.")
    if isinstance(cfg, DatasetsConfig):
        return _dataset_rows(path, cfg)
    return _parquet_rows(path) if isinstance(cfg, ParquetConfig) else _jsonl_rows(path)


def _problem(row: Row, cfg: JsonlConfig, ids: dict[str, str], source: str) -> Problem:
    question = _text(row, cfg.question, "question")
    answer = _text(row, cfg.answer, "gold")
    solution = _optional(row, cfg.solution)
    metadata: tuple[tuple[str, str], ...] = ()
    if cfg.id is not None:
        own = _text(row, cfg.id, "id")
        if own in ids:
            raise InputError(f"{row.where}: {cfg.id} {own!r} was already used at {ids[own]}. Ids must be unique.")
        ids[own] = row.where
        metadata = (("id", own),)
    gold = _gold(answer, cfg, row)
    if cfg.solution is None and cfg.gold != "as_is":
        solution = answer
    family = _optional(row, cfg.family)
    if cfg.family is not None and not family:
        raise _BadRow("no_family", f"field {cfg.family!r} (family) is empty")
    return Problem(
        id=content_id(question, gold),
        question=question,
        gold=gold,
        source=source,
        family=family,
        kind=cfg.answer_kind,
        solution=solution,
        metadata=metadata,
    )


def _text(row: Row, field: str, meaning: str) -> str:
    """A field as text: texts and numbers; anything else is a bad row."""
    if field not in row.value:
        there = ", ".join(map(str, row.value)) or "none"
        raise _BadRow(f"no_{meaning}", f"field {field!r} ({meaning}) is missing; fields here: {there}")
    value = row.value[field]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        kind = "null" if value is None else type(value).__name__
        raise _BadRow(f"no_{meaning}", f"field {field!r} ({meaning}) must be a text or a number: got {kind}")
    text = str(value).strip()
    if not text:
        raise _BadRow(f"no_{meaning}", f"field {field!r} ({meaning}) is empty")
    return text


def _optional(row: Row, field: str | None) -> str:
    if field is None or row.value.get(field) is None:
        return ""
    value = row.value[field]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _BadRow("bad_field", f"field {field!r} must be a text or a number: got {type(value).__name__}")
    return str(value).strip()


def _gold(answer: str, cfg: JsonlConfig, row: Row) -> str:
    """The part of the answer field that is the gold."""
    if cfg.gold == "as_is":
        return answer
    if cfg.gold == "after_hashes":
        _, found, gold = answer.rpartition("####")
        if not found or not gold.strip():
            raise _BadRow("no_gold", f"field {cfg.answer!r} has no text after ####")
        return gold.strip()
    boxed = last_boxed(answer)
    if not boxed:
        raise _BadRow("no_gold", f"field {cfg.answer!r} has no \\boxed{{...}} with something in it")
    return boxed


def last_boxed(text: str) -> str:
    """What stands in the last complete \\boxed{...}, braces counted; '' where there is none. Linear time.

    >>> last_boxed(r"so \\boxed{\\frac{1}{2}}.")
    '\\\\frac{1}{2}'
    """
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    depth, begin = 0, start + len("\\boxed{")
    for at in range(begin, len(text)):
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            if depth == 0:
                return text[begin:at].strip()
            depth -= 1
    return ""


def _jsonl_rows(path: Path) -> Iterator[Row]:
    """One JSON object a line; empty lines are allowed; .gz is opened."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield Row(where=f"{path}:{number}", value=_object(line, f"{path}:{number}", first=number == 1))
    except (OSError, EOFError) as cause:
        raise InputError(f"{path}: cannot be read ({cause}). Is it a whole {path.suffix or 'text'} file?") from cause


def _object(line: bytes, where: str, first: bool) -> Mapping[str, Any]:
    try:
        text = line.decode("utf-8-sig" if first else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as cause:
        raise InputError(
            f"{where}: must be UTF-8 (byte {cause.start + 1} of the line is not). Save it as UTF-8."
        ) from cause
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as cause:
        hint = "Write one JSON object a line, not one array." if text.lstrip()[:1] == "[" else "Check the line."
        raise InputError(f"{where}: is not JSON ({cause.msg} at column {cause.colno}). {hint}") from cause
    except RecursionError as cause:
        raise InputError(f"{where}: is nested too deeply. Write a flat JSON object.") from cause
    except ValueError as cause:
        raise InputError(f"{where}: {cause}. Correct the line.") from cause
    if not isinstance(value, dict):
        raise InputError(
            f'{where}: each line must be a JSON object: got {type(value).__name__}. Write {{"question": ...}}.'
        )
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {twice!r} is given twice")
    return found


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        number = 0
        for batch in file.iter_batches(batch_size=4096):
            for value in batch.to_pylist():
                number += 1
                yield Row(where=f"{path}: row {number}", value=value)
    except (pa.ArrowInvalid, OSError) as cause:
        raise InputError(
            f"{path}: is not a readable Parquet file ({cause}). Write it with pyarrow or pandas."
        ) from cause


def _columns_exist(path: Path, names: list[str], cfg: JsonlConfig) -> None:
    wanted = [cfg.question, cfg.answer, *(name for name in (cfg.solution, cfg.family, cfg.id) if name is not None)]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise InputError(
            f"{path}: has no column {', '.join(missing)}; columns here: {', '.join(names)}. Name the right ones."
        )


def _dataset_rows(path: Path, cfg: DatasetsConfig) -> Iterator[Row]:
    """A folder written by save_to_disk, or one of data files that `datasets` can open without code."""
    datasets = _optional_module("datasets")
    try:
        if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
            loaded = datasets.load_from_disk(str(path))
        else:
            loaded = _dataset_files(path, datasets)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as cause:
        raise InputError(f"{path}: cannot be opened as a data set ({cause}). Give a folder of save_to_disk.") from cause
    if isinstance(loaded, dict):
        splits = sorted(loaded)
        split = cfg.split or (splits[0] if len(splits) == 1 else None)
        if split is None or split not in loaded:
            got = "none" if split is None else split
            raise InputError(f"{path}: split must be one of {', '.join(splits)}: got {got}. Set problems.source.split.")
        loaded = loaded[split]
    elif cfg.split is not None:
        raise InputError(f"{path}: holds one unnamed split: got split {cfg.split}. Remove problems.source.split.")
    for number, value in enumerate(loaded, start=1):
        yield Row(where=f"{path}: row {number}", value=value)


def _dataset_files(path: Path, datasets: Any) -> Any:
    """Data files by extension, named by split: train.jsonl, test.parquet, ..."""
    for suffix, builder in ((".parquet", "parquet"), (".jsonl", "json"), (".csv", "csv")):
        files = sorted(path.glob(f"*{suffix}")) if path.is_dir() else []
        if files:
            return datasets.load_dataset(builder, data_files={file.stem: str(file) for file in files})
    raise InputError(f"{path}: holds neither a saved data set nor .parquet, .jsonl or .csv files. Give another folder.")


def read_reasoning_gym(cfg: ReasoningGymConfig, seed: int) -> Read:
    """`cfg.count` problems of a reasoning-gym data set; its own seed derives from the run's.

    Raises InputError where the package, the data set or a parameter is unknown.
    """
    gym = _optional_module("reasoning_gym")
    from reasoning_gym.factory import DATASETS

    if cfg.dataset not in DATASETS:
        import difflib

        near = difflib.get_close_matches(cfg.dataset, DATASETS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "Known: " + ", ".join(sorted(DATASETS)) + "."
        raise InputError(f"problems.source.dataset: reasoning-gym has no data set {cfg.dataset!r}. {hint}")
    own_seed = derive(seed, "reasoning_gym", cfg.dataset) % 2**31
    try:
        dataset = gym.create_dataset(cfg.dataset, **{"size": cfg.count, "seed": own_seed, **cfg.params})
    except (TypeError, ValueError, AssertionError) as cause:
        raise InputError(
            f"problems.source.params: {cfg.dataset} refuses them ({cause}). See its configuration."
        ) from cause
    problems: list[tuple[Problem, str]] = []
    dropped: list[Dropped] = []
    for number in range(cfg.count):
        entry, where = dataset[number], f"reasoning_gym {cfg.dataset}: item {number}"
        question, gold = str(entry["question"]).strip(), entry["answer"]
        if gold is None or not str(gold).strip():
            dropped.append(Dropped(reason="no_gold", where=where, detail="the data set gives no reference answer"))
            continue
        gold = str(gold).strip()
        problem = Problem(
            id=content_id(question, gold), question=question, gold=gold, source="reasoning_gym", family=cfg.dataset
        )
        problems.append((problem, where))
    return Read(problems=tuple(problems), dropped=tuple(dropped))


def _optional_module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as cause:
        raise InputError(
            f"this source needs the package {name}. Install it with: pip install -e '.[problems]' in the checkout"
        ) from cause
