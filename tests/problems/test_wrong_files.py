"""Wrong problem files: each gives one clear message with its place, or is counted."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from algorist.errors import InputError
from algorist.problems.config import DatasetsConfig, JsonlConfig, ParquetConfig, ReasoningGymConfig
from algorist.problems.rows import last_boxed, read_file, read_reasoning_gym

GOOD = '{"question": "1 + 1", "answer": "2"}\n'


def complaint(folder: Path, content: bytes | str, **settings: object) -> str:
    raw = content.encode() if isinstance(content, str) else content
    (folder / "p.jsonl").write_bytes(raw)
    with pytest.raises(InputError) as caught:
        read_file(JsonlConfig(path="p.jsonl", **settings), folder)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    return str(caught.value).replace(f"{folder}/", "")


REPAIR = "Correct the rows, or set on_bad_row: drop to leave them out, counted."
WRONG: dict[str, tuple[bytes | str, dict[str, object], str]] = {
    "empty gold": (
        GOOD + '{"question": "3", "answer": " "}\n',
        {},
        f"p.jsonl:2: field 'answer' (gold) is empty\n{REPAIR}",
    ),
    "empty question": (
        '{"question": "", "answer": "4"}\n',
        {},
        f"p.jsonl:1: field 'question' (question) is empty\n{REPAIR}",
    ),
    "missing field": (
        '{"problem": "1", "answer": "4"}\n',
        {},
        f"p.jsonl:1: field 'question' (question) is missing; fields here: problem, answer\n{REPAIR}",
    ),
    "list for a gold": (
        '{"question": "1", "answer": [4]}\n',
        {},
        f"p.jsonl:1: field 'answer' (gold) must be a text or a number: got list\n{REPAIR}",
    ),
    "null for a gold": (
        '{"question": "1", "answer": null}\n',
        {},
        f"p.jsonl:1: field 'answer' (gold) must be a text or a number: got null\n{REPAIR}",
    ),
    "truth value for a gold": (
        '{"question": "1", "answer": true}\n',
        {},
        f"p.jsonl:1: field 'answer' (gold) must be a text or a number: got bool\n{REPAIR}",
    ),
    "no hashes": (
        '{"question": "1", "answer": "so 4"}\n',
        {"gold": "after_hashes"},
        f"p.jsonl:1: field 'answer' has no text after ####\n{REPAIR}",
    ),
    "unclosed box": (
        '{"question": "1", "answer": "so \\\\boxed{4"}\n',
        {"gold": "last_boxed"},
        f"p.jsonl:1: field 'answer' has no \\boxed{{...}} with something in it\n{REPAIR}",
    ),
    "empty family": (
        '{"question": "1", "answer": "4", "f": ""}\n',
        {"family": "f"},
        f"p.jsonl:1: field 'f' (family) is empty\n{REPAIR}",
    ),
    "duplicate ids": (
        '{"question": "1", "answer": "4", "n": 7}\n{"question": "2", "answer": "5", "n": 7}\n',
        {"id": "n"},
        "p.jsonl:2: n '7' was already used at p.jsonl:1. Ids must be unique.",
    ),
    "not UTF-8": (
        GOOD.encode() + b'{"question": "\xff", "answer": "4"}\n',
        {},
        "p.jsonl:2: must be UTF-8 (byte 15 of the line is not). Save it as UTF-8.",
    ),
    "not JSON": (
        GOOD + "{question: 1}\n",
        {},
        "p.jsonl:2: is not JSON (Expecting property name enclosed in double quotes at column 2). Check the line.",
    ),
    "an array over lines": (
        "[\n" + GOOD + "]\n",
        {},
        "p.jsonl:1: is not JSON (Expecting value at column 2). Write one JSON object a line, not one array.",
    ),
    "not an object": (
        '["1", "2"]\n',
        {},
        'p.jsonl:1: each line must be a JSON object: got list. Write {"question": ...}.',
    ),
    "a field twice": (
        '{"question": "1", "question": "2", "answer": "4"}\n',
        {},
        "p.jsonl:1: field 'question' is given twice. Correct the line.",
    ),
    "nothing but empty lines": ("\n\n", {}, "p.jsonl: holds no rows. Give a file with at least one problem."),
    "nested a thousand deep": (
        '{"question": ' + "[" * 100_000 + "\n",
        {},
        "p.jsonl:1: is nested too deeply. Write a flat JSON object.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_file_has_one_message_that_names_place_and_fix(name: str, tmp_path: Path) -> None:
    content, settings, message = WRONG[name]
    assert complaint(tmp_path, content, **settings) == message


def test_ten_bad_rows_are_named_and_the_others_counted(tmp_path: Path) -> None:
    message = complaint(tmp_path, '{"question": "1"}\n' * 14)
    assert message.count("is missing") == 10
    assert "\n... and 4 more\n" in message


def test_bad_rows_are_counted_where_the_recipe_lets_them_drop(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(GOOD + '{"question": "3", "answer": ""}\n' + '{"answer": "4"}\n')
    found = read_file(JsonlConfig(path="p.jsonl", on_bad_row="drop"), tmp_path)
    assert len(found.problems) == 1
    assert [(row.reason, row.where.rsplit("/", 1)[-1]) for row in found.dropped] == [
        ("no_gold", "p.jsonl:2"),
        ("no_question", "p.jsonl:3"),
    ]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: no such file\."):
        read_file(JsonlConfig(path="none.jsonl"), tmp_path)


def test_a_cut_gzip_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress((GOOD * 1000).encode())[:-9])
    with pytest.raises(InputError, match=r"p\.jsonl\.gz: cannot be read"):
        read_file(JsonlConfig(path="p.jsonl.gz"), tmp_path)


def test_numbers_are_golds_and_places_are_kept(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('\ufeff{"q": " 1 + 1 ", "a": 2, "s": "1 + 1 = 2", "lv": "easy", "n": "x"}\n')
    cfg = JsonlConfig(path="p.jsonl", question="q", answer="a", solution="s", family="lv", id="n", answer_kind="number")
    ((problem, where),) = read_file(cfg, tmp_path).problems
    assert (problem.question, problem.gold, problem.solution, problem.family) == ("1 + 1", "2", "1 + 1 = 2", "easy")
    assert (problem.kind, problem.metadata, problem.source) == ("number", (("id", "x"),), "p.jsonl")
    assert where.endswith("p.jsonl:1")


def test_gold_adapters_keep_the_answer_as_solution(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(b'{"question": "q", "answer": "2+2=4\\n#### 4"}\n'))
    ((problem, _),) = read_file(JsonlConfig(path="p.jsonl.gz", gold="after_hashes"), tmp_path).problems
    assert (problem.gold, problem.solution) == ("4", "2+2=4\n#### 4")


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("none", ""),
        (r"\boxed{}", ""),
        (r"\boxed{" + "{" * 100_000, ""),
    ],
)
def test_the_last_box_is_read_with_counted_braces(text: str, inside: str) -> None:
    assert last_boxed(text) == inside


def test_limit_reads_only_the_first_rows(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text("".join(f'{{"question": "{i}", "answer": "1"}}\n' for i in range(9)))
    assert len(read_file(JsonlConfig(path="p.jsonl", limit=4), tmp_path).problems) == 4


def table(folder: Path, **columns: list[object]) -> Path:
    path = folder / "p.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_rows_are_numbered(tmp_path: Path) -> None:
    table(tmp_path, question=["a", "b"], answer=["1", None])
    with pytest.raises(
        InputError, match=r"p\.parquet: row 2: field 'answer' \(gold\) must be a text or a number: got null"
    ):
        read_file(ParquetConfig(path="p.parquet"), tmp_path)
    found = read_file(ParquetConfig(path="p.parquet", on_bad_row="drop"), tmp_path)
    assert [problem.question for problem, _ in found.problems] == ["a"]


def test_a_parquet_file_without_the_column_lists_those_it_has(tmp_path: Path) -> None:
    table(tmp_path, problem=["a"], answer=["1"])
    with pytest.raises(InputError, match=r"has no column question; columns here: problem, answer"):
        read_file(ParquetConfig(path="p.parquet"), tmp_path)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.parquet").write_text("hello")
    with pytest.raises(InputError, match=r"p\.parquet: is not a readable Parquet file"):
        read_file(ParquetConfig(path="p.parquet"), tmp_path)


def test_datasets_folders_are_read_and_wrong_splits_named(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"question": ["a", "b"], "answer": ["1", "2"]}
    datasets.DatasetDict(
        {"train": datasets.Dataset.from_dict(rows), "test": datasets.Dataset.from_dict(rows)}
    ).save_to_disk(str(tmp_path / "saved"))
    assert len(read_file(DatasetsConfig(path="saved", split="train"), tmp_path).problems) == 2
    with pytest.raises(InputError, match=r"split must be one of test, train: got none\."):
        read_file(DatasetsConfig(path="saved"), tmp_path)
    with pytest.raises(InputError, match=r"split must be one of test, train: got dev\."):
        read_file(DatasetsConfig(path="saved", split="dev"), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds neither a saved data set nor"):
        read_file(DatasetsConfig(path="empty"), tmp_path)


def test_datasets_opens_folders_of_plain_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "files"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(json.dumps({"question": split, "answer": "1"}) + "\n")
    ((problem, where),) = read_file(DatasetsConfig(path="files", split="test"), tmp_path).problems
    assert problem.question == "test"
    assert where.endswith("files: row 1")


def test_reasoning_gym_is_seeded_and_its_mistakes_are_named() -> None:
    pytest.importorskip("reasoning_gym")
    cfg = ReasoningGymConfig(dataset="chain_sum", params={"min_terms": 2, "max_terms": 2}, count=5)
    first, again, other = (read_reasoning_gym(cfg, seed).problems for seed in (0, 0, 1))
    assert first == again != other
    assert all(problem.family == "chain_sum" and problem.gold for problem, _ in first)
    with pytest.raises(InputError, match=r"no data set 'chainsum'\. Did you mean chain_sum\?"):
        read_reasoning_gym(ReasoningGymConfig(dataset="chainsum", count=5), 0)
    with pytest.raises(InputError, match="chain_sum refuses them"):
        read_reasoning_gym(ReasoningGymConfig(dataset="chain_sum", params={"terms": 2}, count=5), 0)
