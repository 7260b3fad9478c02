"""Methods on equal terms: one start, one order, one budget; an interrupted comparison goes on; the page says it all."""

import json
from pathlib import Path

import pytest

from algorist.errors import InputError, Stopped
from algorist.launch.compare import Variant, compare
from algorist.record.rollouts import read_rows
from algorist.report.comparison_data import table
from algorist.stages.listener import Silent

RECIPE = Path(__file__).with_name("nano.yaml")
SHORT = ["rl.updates=2", "rl.evaluate_every=null", "sft.steps=30"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    variants = [Variant.parse("rft"), Variant.parse("grpo"), Variant.parse("plain=grpo rl.objective.beta=0")]
    out = tmp_path_factory.mktemp("compare") / "out"
    return compare(RECIPE, variants, [0, 1], out, listener=Silent(), overrides=SHORT), variants


def rows(out: Path, seed: int, label: str, batch: int) -> list[dict]:
    return read_rows(out / f"seed-{seed}" / label / "rollouts" / f"batch-{batch:06d}.parquet")


def test_every_method_has_the_same_start_problems_order_and_number_of_samples(compared) -> None:
    done, variants = compared
    out = done.page.parent
    for seed in (0, 1):
        runs = [run for run in done.comparison.runs if run.seed == seed]
        assert len({run.before.policy_digest for run in runs}) == 1
        assert len({run.after.policy_digest for run in runs}) == len(variants)
        assert {run.rollouts for run in runs} == {done.comparison.budget["responses"]} == {48}
        for batch in (0, 1):
            asked = {tuple(row["problem_id"] for row in rows(out, seed, v.label, batch)) for v in variants}
            assert len(asked) == 1
        first = [[row["token_ids"] for row in rows(out, seed, v.label, 0)] for v in variants]
        assert first[0] == first[1] == first[2]


def test_supervised_fine_tuning_is_done_once_a_seed(compared) -> None:
    done, variants = compared
    for seed in (0, 1):
        folder = done.page.parent / f"seed-{seed}"
        assert {p.name for p in folder.iterdir()} == {"start", *(v.label for v in variants)}
        for v in variants:
            contract = json.loads((folder / v.label / "contract.json").read_bytes())
            assert contract["recipe"]["sft"] is None
            assert contract["recipe"]["policy"]["path"].endswith(f"seed-{seed}/start/export")


def test_the_coefficients_are_the_stored_advantages_of_the_methods_whose_coefficient_that_is(compared) -> None:
    done, _ = compared
    out = done.page.parent
    stored = {(row["text"], row["advantage"]) for row in rows(out, 0, "plain", 0)}
    groups = done.comparison.coefficients
    assert groups
    for group in groups:
        for response in group.responses:
            (_, value), *_ = response.by_label["plain"]
            assert any(text == response.text and abs(a - value) < 1e-6 for text, a in stored)
            assert {v for _, v in response.by_label["rft"]} <= {0.0, 1.0}
            assert (response.by_label["rft"][0][1] == 1.0) == (response.verdict == "correct")


def test_the_document_and_the_page_hold_what_was_measured(compared) -> None:
    done, _ = compared
    document = json.loads(done.data.read_bytes())
    assert document["schema"] == "algorist/compare/1"
    assert document["seeds"] == [0, 1]
    assert document["table"] == json.loads(json.dumps(table(done.comparison)))
    for label, measure in (("rft", "greedy"), ("plain", "mean@4")):
        row = document["table"][label][measure]
        runs = [r for r in done.comparison.runs if r.label == label]
        values = [r.after.greedy.value if measure == "greedy" else r.after.mean_at[4].value for r in runs]
        assert list(row["by_seed"].values()) == values
        assert row["after"]["value"] == pytest.approx(sum(values) / 2)
        assert row["after"]["low"] <= row["after"]["value"] <= row["after"]["high"]
    page = done.page.read_text()
    assert "http://" not in page
    assert "https://" not in page
    for text in ("rft", "plain", "Student", "The same responses under every method", "learning"):
        assert text.lower() in page.lower()


def test_the_same_command_repeats_nothing_and_writes_the_same_page(compared) -> None:
    done, variants = compared
    out = done.page.parent
    ledger = (out / "seed-0" / "grpo" / "ledger.jsonl").read_bytes()
    before = done.data.read_bytes(), done.page.read_bytes()
    again = compare(RECIPE, variants, [0, 1], out, listener=Silent(), overrides=SHORT)
    assert (out / "seed-0" / "grpo" / "ledger.jsonl").read_bytes() == ledger
    assert (again.data.read_bytes(), again.page.read_bytes()) == before


def test_a_stopped_comparison_goes_on_to_the_same_result(compared, tmp_path) -> None:
    done, variants = compared
    calls = iter(range(10_000))
    out = tmp_path / "out"
    with pytest.raises(Stopped):
        compare(
            RECIPE, variants, [0], out, listener=Silent(), overrides=SHORT, stop_requested=lambda: next(calls) >= 33
        )
    half = out / "seed-0" / "plain"
    half.mkdir(parents=True)
    (half / "contract.json").write_text("{}")  # as a kill between the contract and the first event leaves it
    mine = compare(RECIPE, variants, [0], out, listener=Silent(), overrides=SHORT).document
    for run in mine["runs"]:
        theirs = next(r for r in done.document["runs"] if (r["label"], r["seed"]) == (run["label"], 0))
        assert run["after"] == theirs["after"]
        assert run["rewards"] == theirs["rewards"]


def test_unequal_budgets_are_refused_before_anything_runs(tmp_path) -> None:
    variants = [Variant.parse("grpo"), Variant.parse("more=grpo rl.group_size=8")]
    with pytest.raises(InputError, match=r"same budget: responses_per_problem is 4 for grpo and 8 for more"):
        compare(RECIPE, variants, [0], tmp_path / "out", listener=Silent(), overrides=SHORT)
    assert not (tmp_path / "out").exists()


def test_another_recipe_does_not_go_into_the_folder_of_a_comparison(compared) -> None:
    done, variants = compared
    with pytest.raises(InputError, match="another recipe or with other settings"):
        compare(RECIPE, variants, [0], done.page.parent, listener=Silent(), overrides=[*SHORT, "rl.optimizer.lr=1e-3"])


@pytest.mark.parametrize(
    ("texts", "seeds", "message"),
    [
        (["grpo", "grpo"], [0], "got grpo twice"),
        (["grpo"], [0, 0], "got 0 twice"),
        ([], [0], "at least one of --methods"),
        (["start=grpo"], [0], "a label is a folder name"),
        (["a/b=grpo"], [0], "a label is a folder name"),
    ],
)
def test_labels_and_seeds_that_cannot_be_told_apart_are_refused(texts, seeds, message, tmp_path) -> None:
    with pytest.raises(InputError, match=message):
        compare(RECIPE, [Variant.parse(t) for t in texts], seeds, tmp_path / "o", listener=Silent(), overrides=SHORT)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(InputError, match="a method must be one of sft, rft"):
        Variant.parse("quicksort")
