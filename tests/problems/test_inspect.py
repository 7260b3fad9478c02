"""Looking at a stranger's file: the guess reads it, and says why."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from algorist.errors import InputError
from algorist.problems.config import ParquetConfig
from algorist.problems.inspect import look
from algorist.problems.rows import read_file

SHARED = Path(os.environ.get("ALGORIST_SHARED", Path(__file__).parents[3] / "shared"))


def write(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_usual_names_are_found_and_reasons_given(tmp_path: Path) -> None:
    rows = [
        {"unique_id": i, "Problem": f"{i}", "answer": i, "solution": "so", "level": 3, "subject": "a"} for i in range(9)
    ]
    found = look(write(tmp_path, *rows))
    source = found.source
    assert (source.question, source.answer, source.solution) == ("Problem", "answer", "solution")
    assert (source.family, source.id, source.gold) == ("subject", "unique_id", "as_is")
    assert found.notes[0] == "question: field 'Problem'"
    assert len(read_file(source, tmp_path).problems) == found.rows == 9


def test_marks_in_the_answer_set_the_gold_adapter(tmp_path: Path) -> None:
    hashes = look(write(tmp_path, {"question": "a", "answer": "1+1\n#### 2"}))
    assert (hashes.source.gold, hashes.source.solution) == ("after_hashes", None)
    boxed = look(
        write(
            tmp_path,
            {"problem": "a", "solution": "is \\boxed{2}", "id": 1},
            {"problem": "b", "solution": "\\boxed{3}", "id": 1},
        )
    )
    assert (boxed.source.answer, boxed.source.gold, boxed.source.id) == ("solution", "last_boxed", None)
    assert "field 'id' repeats, so it is not used as id" in boxed.notes


def test_a_field_that_is_mostly_empty_is_not_taken(tmp_path: Path) -> None:
    rows = [{"question": "a", "answer": "", "target": str(i)} for i in range(5)]
    assert look(write(tmp_path, *rows)).source.answer == "target"


def test_a_file_without_a_usable_field_lists_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no field can be taken for the answer; fields here: question, size\."):
        look(write(tmp_path, {"question": "a", "size": 1}))
    with pytest.raises(InputError, match="no field can be taken for the question"):
        look(write(tmp_path, {"ask": "a", "answer": 1}))


def test_parquet_is_told_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    pq.write_table(pa.table({"query": ["a"], "gold": ["1"]}), path)
    found = look(path)
    assert isinstance(found.source, ParquetConfig)
    assert (found.source.question, found.source.answer) == ("query", "gold")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not here (set ALGORIST_SHARED)")
@pytest.mark.parametrize(
    ("file", "question", "answer", "gold"),
    [
        ("gsm8k/train.jsonl.gz", "question", "answer", "after_hashes"),
        ("math/math500.jsonl.gz", "problem", "answer", "as_is"),
        ("math/test.jsonl.gz", "problem", "solution", "last_boxed"),
        ("gsm_hard/test.jsonl.gz", "input", "target", "as_is"),
        ("mawps/addsub.jsonl.gz", "input", "target", "as_is"),
    ],
)
def test_public_files_are_read_as_their_authors_meant(file: str, question: str, answer: str, gold: str) -> None:
    found = look(SHARED / "data" / file)
    assert (found.source.question, found.source.answer, found.source.gold) == (question, answer, gold)
