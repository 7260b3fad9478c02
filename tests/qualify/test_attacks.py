"""Every way of tampering with a run ends in exit code 4 and a message that names the file, whatever was repaired behind it."""

import json
import os
import shutil
import unicodedata
from pathlib import Path

import pytest

from algorist.digest import canonical, file_digest
from algorist.launch.audit import audit
from algorist.qualify import check as checker
from algorist.record.commit import numbered


def last(run: Path) -> Path:
    return numbered(run / "checkpoints")[-1]


def first_and_last(run: Path) -> tuple[Path, Path]:
    found = numbered(run / "checkpoints")
    return found[0], found[-1]


def ledger_bytes(change):
    """Change line 30 of the ledger in place, nothing repaired."""

    def attack(f, run):
        found = f.lines(run)
        found[30] = change(found[30])
        (run / "ledger.jsonl").write_bytes(b"".join(found))

    return attack


def with_key(text):
    return ledger_bytes(lambda line: line.replace(b'"policy_version":', text + b',"policy_version":', 1))


def then_receipts(attack):
    """The attack, and the receipts forged to fit."""

    def whole(f, run):
        attack(f, run)
        f.reissue(run)

    return whole


def pipe(name):
    def attack(f, run):
        path = run / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return attack


def export_file(name, data):
    def attack(f, run):
        (run / "export" / name).write_bytes(data((run / "export" / name).read_bytes() if data else b""))
        f.remanifest(run, "export")

    return then_receipts(attack)


def other_promise(change):
    return then_receipts(lambda f, run: f.contract(run, change))


def rows(change, batch=2, figures=True):
    return then_receipts(lambda f, run: f.rollouts(run, batch, change, figures=figures))


def set_nats(d):
    d["recipe"]["rl"]["replay"]["nats"] = 0.5
    d["promises"]["replay"]["nats"] = 0.5


def swap_rows(found):
    found[0], found[1] = found[1], found[0]


def moved(old, new):
    def attack(found):
        found.insert(new, found.pop(old))
        return found

    return then_receipts(lambda f, run: f.rechain(run, attack))


def all_right(raw):
    for record in raw["per_problem"]:
        record.update(correct=[True] * record["num_samples"], num_correct=record["num_samples"])


def swap_checkpoints(f, run):
    a, b = first_and_last(run)
    f.swap(a, b)
    for path in (a, b):
        f.events(
            run, "checkpoint", lambda e, p=path: e.update(manifest=file_digest(p / "manifest.json")), name=path.name
        )


def swap_weights(f, run):
    a, b = first_and_last(run)
    f.swap(a / "weights.safetensors", b / "weights.safetensors")
    f.remanifest(run, f"checkpoints/{a.name}")
    f.remanifest(run, f"checkpoints/{b.name}")


def move_last_weights(f, run):
    f.weights(last(run) / "weights.safetensors", 0.01)
    f.remanifest(run, f"checkpoints/{last(run).name}")


def foreign_tokenizer(data):
    tokenizer = json.loads(data)
    vocabulary = tokenizer["model"]["vocab"]
    a, b = sorted(vocabulary, key=vocabulary.get)[5:7]
    vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]
    return json.dumps(tokenizer).encode()


QUICK = {  # one or two of each kind; the rest, below, are slow
    "edit a metric": ("metrics.jsonl", lambda f, run: f.metrics(run, "rl", 1, lambda r: r.update(loss=0.5))),
    "edit a metric, receipts forged": (
        "metrics.jsonl",
        then_receipts(lambda f, run: f.metrics(run, "rl", 3, lambda r: r.update({"policy/entropy_nats": 9.0}))),
    ),
    "forge a loss in ledger and metrics": (
        "ledger.jsonl",
        then_receipts(
            lambda f, run: (
                f.events(run, "update_applied", lambda e: e.update(loss=-1.0), batch=2),
                f.metrics(run, "rl", 2, lambda r: r.update(loss=-1.0)),
            )
        ),
    ),
    "drop a line, chained again": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.rechain(run, lambda e: e[:20] + e[21:])),
    ),
    "cut the tail": ("ledger.jsonl", lambda f, run: (run / "ledger.jsonl").write_bytes(b"".join(f.lines(run)[:-1]))),
    "empty the ledger": (
        "ledger.jsonl",
        lambda f, run: ((run / "ledger.jsonl").write_bytes(b""), shutil.rmtree(run / "receipts")),
    ),
    "clock set back": (
        "ledger.jsonl",
        then_receipts(
            lambda f, run: f.events(
                run, "rollout_batch", lambda e: e["wall"].update(time="2020-01-01T00:00:00.000Z"), batch=2
            )
        ),
    ),
    "nan in the ledger": ("ledger.jsonl", with_key(b'"x":NaN')),
    "doubled key in the ledger": ("ledger.jsonl", with_key(b'"x":1,"x":2')),
    "nesting bomb in the ledger": ("ledger.jsonl", with_key(b'"x":' + b"[" * 100_000 + b"]" * 100_000)),
    "loosen a threshold, everything derived again": ("ledger.jsonl", other_promise(set_nats)),
    "remove the promises": ("contract.json", other_promise(lambda d: d.pop("promises"))),
    "another start": ("contract.json", other_promise(lambda d: d["policy"].update(weights="0" * 64))),
    "pay a wrong answer, advantages fitted": (
        "batch-000001.parquet",
        then_receipts(lambda f, run: f.rollouts(run, 1, f.pay)),
    ),
    "advantages that are no numbers": (
        "batch-000002.parquet",
        rows(lambda r: [x.update(advantage=float("nan")) for x in r]),
    ),
    "another gold": ("batch-000002.parquet", rows(lambda r: r[0].update(gold="7"))),
    "rows in another order": ("batch-000002.parquet", rows(swap_rows)),
    "other log-probabilities where weights are kept": (
        "batch-000003.parquet",
        rows(lambda r: [x.update(behaviour_logp=[v - 0.5 for v in x["behaviour_logp"]]) for x in r], batch=3),
    ),
    "a partial evaluation": (
        "after.json",
        then_receipts(lambda f, run: f.evaluation(run, "after", lambda raw: raw["per_problem"].pop())),
    ),
    "every answer right": ("after.json", then_receipts(lambda f, run: f.evaluation(run, "after", all_right))),
    "swap two checkpoints": ("checkpoints/step-", then_receipts(swap_checkpoints)),
    "move the last weights": ("checkpoints/step-", then_receipts(move_last_weights)),
    "another tokenizer in the export": ("export", export_file("tokenizer.json", foreign_tokenizer)),
    "omit a failed gate": (
        "receipts/0001",
        lambda f, run: f.forge_receipt(run, lambda s, o: s["predicate"]["gates"].pop(3)),
    ),
    "empty receipts folder": ("receipts", lambda f, run: [p.unlink() for p in (run / "receipts").iterdir()]),
    "a pipe for the contract": ("contract.json", pipe("contract.json")),
    "an extra file, receipted": ("extra.txt", then_receipts(lambda f, run: (run / "extra.txt").write_text("x"))),
    "twins in normalisation": (
        "caf",
        then_receipts(
            lambda f, run: [(run / "logs" / unicodedata.normalize(n, "café")).write_text("a") for n in ("NFC", "NFD")]
        ),
    ),
}
SLOW = {
    "reward in the metrics": (
        "metrics.jsonl",
        then_receipts(lambda f, run: f.metrics(run, "rl", 2, lambda r: r.update({"reward/mean": 0.99}))),
    ),
    "gradient norm in ledger and metrics": (
        "ledger.jsonl",
        then_receipts(
            lambda f, run: (
                f.events(run, "update_applied", lambda e: e.update(grad_norm=9.0), batch=3),
                f.metrics(run, "rl", 3, lambda r: r.update(grad_norm=9.0)),
            )
        ),
    ),
    "learning rate in ledger and metrics": (
        "ledger.jsonl",
        then_receipts(
            lambda f, run: (
                f.events(run, "update_applied", lambda e: e.update(lr=1.0), batch=2),
                f.metrics(run, "rl", 2, lambda r: r.update(lr=1.0)),
            )
        ),
    ),
    "held-out figure in the metrics": (
        "metrics.jsonl",
        then_receipts(lambda f, run: f.metrics(run, "evaluate", 1, lambda r: r.update({"heldout/mean_at_2": 1.0}))),
    ),
    "a row of metrics twice": (
        "metrics.jsonl",
        then_receipts(lambda f, run: f.write_metrics(run, [*_rows(run)[:3], *_rows(run)[2:]])),
    ),
    "rows of metrics swapped": (
        "metrics.jsonl",
        then_receipts(lambda f, run: f.write_metrics(run, [_rows(run)[i] for i in (0, 2, 1, *range(3, len(_rows(run))))])),
    ),
    "doubled key in the metrics": (
        "metrics.jsonl",
        then_receipts(lambda f, run: f.replace(run / "metrics.jsonl", b'"stage":"rl"', b'"stage":"rl","stage":"rl"')),
    ),
    "double a line, chained again": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.rechain(run, lambda e: e[:20] + e[19:])),
    ),
    "move a line, chained again": ("ledger.jsonl", moved(18, 20)),
    "tear the last line": ("ledger.jsonl", lambda f, run: (run / "ledger.jsonl").write_bytes(b"".join(f.lines(run))[:-30])),
    "cut the tail and the receipts": (
        "state.json",
        lambda f, run: ((run / "ledger.jsonl").write_bytes(b"".join(f.lines(run)[:-8])), shutil.rmtree(run / "receipts")),
    ),
    "minus zero": ("ledger.jsonl", with_key(b'"x":-0')),
    "a number too big for JSON": ("ledger.jsonl", with_key(b'"x":' + b"9" * 20)),
    "a number too big for Python": ("ledger.jsonl", with_key(b'"x":' + b"9" * 6000)),
    "half a character": ("ledger.jsonl", with_key(b'"x":"\\ud800"')),
    "text for a number": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.events(run, "rollout_batch", lambda e: e.update(batch="2"), batch=2)),
    ),
    "a replay that is no number passes": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.events(run, "replay_check", lambda e: e.update(mean_nats="nan"), batch=0)),
    ),
    "another figure of a gate": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.events(run, "gate", lambda e: e.update(cause="all is well"), name="data")),
    ),
    "another value of the signal": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.events(run, "gate", lambda e: e.update(value=0.9), name="signal")),
    ),
    "a gate that was never judged": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.rechain(run, lambda e: [x for x in e if x.get("name") != "verifier_canary"])),
    ),
    "replays left out": (
        "ledger.jsonl",
        then_receipts(lambda f, run: f.rechain(run, lambda e: [x for x in e if x["kind"] != "replay_check"])),
    ),
    "fewer gates promised": ("contract.json", other_promise(lambda d: d["promises"].update(gates=d["promises"]["gates"][:3]))),
    "other problems": ("contract.json", other_promise(lambda d: d["problems"].update(digest="0" * 64))),
    "other formulas": ("contract.json", other_promise(lambda d: d["formulas"]["rl"].update(estimator="the best"))),
    "another rate in the recipe": ("ledger.jsonl", other_promise(lambda d: d["recipe"]["rl"]["optimizer"].update(lr=0.004))),
    "another denominator in the recipe": (
        "contract.json",
        other_promise(lambda d: d["recipe"]["rl"]["objective"].update(reduction="sequence_mean")),
    ),
    "a contract of brackets": ("contract.json", lambda f, run: (run / "contract.json").write_bytes(b"[" * 200_000)),
    "no contract": ("contract.json", lambda f, run: (run / "contract.json").unlink()),
    "verdict alone": (
        "batch-000001.parquet",
        rows(lambda r: next(x for x in r if x["verdict"] == "wrong").update(verdict="correct"), batch=1),
    ),
    "a row that the verifier failed on": (
        "batch-000002.parquet",
        rows(lambda r: r[0].update(reward=None, reward_error="verifier: timeout", advantage=None)),
    ),
    "other text": ("batch-000002.parquet", rows(lambda r: r[0].update(text="42"))),
    "other tokens": (
        "batch-000002.parquet",
        rows(lambda r: r[0].update(token_ids=[r[0]["token_ids"][0] ^ 1, *r[0]["token_ids"][1:]])),
    ),
    "another seed": ("batch-000002.parquet", rows(lambda r: r[0].update(seed=5))),
    "another policy version": (
        "batch-000002.parquet",
        rows(lambda r: r[0].update(policy_version=[0] * len(r[0]["policy_version"]))),
    ),
    "tokens left out of the loss": (
        "batch-000002.parquet",
        rows(lambda r: [x.update(loss_mask=[False] * len(x["loss_mask"])) for x in r[:6]]),
    ),
    "a row less": ("batch-000002.parquet", rows(lambda r: r.pop())),
    "a column of another type": ("batch-000002.parquet", then_receipts(lambda f, run: _retype(f, run))),
    "no parquet": ("batch-000002.parquet", then_receipts(lambda f, run: _no_parquet(f, run))),
    "an evaluation of other weights": (
        "after.json",
        then_receipts(lambda f, run: f.evaluation(run, "after", lambda raw: raw.update(policy_digest="0" * 64))),
    ),
    "a bomb of resamples": (
        "after.json",
        lambda f, run: f.replace(run / "evaluations/after.json", b'"resamples": 100', b'"resamples": 1000000000000'),
    ),
    "swap two checkpoints' weights": ("checkpoints/step-", then_receipts(swap_weights)),
    "a stranger in a checkpoint": (
        "evil.py",
        then_receipts(lambda f, run: ((last(run) / "evil.py").write_text(""), f.remanifest(run, f"checkpoints/{last(run).name}"))),
    ),
    "weights that are none": (
        "weights.safetensors",
        then_receipts(
            lambda f, run: (
                (last(run) / "weights.safetensors").write_bytes(b"\xff" * 999),
                f.remanifest(run, f"checkpoints/{last(run).name}"),
            )
        ),
    ),
    "LATEST names an older one": (
        "LATEST",
        then_receipts(lambda f, run: (run / "checkpoints/LATEST").write_text(f"{first_and_last(run)[0].name}\n")),
    ),
    "another card": ("export/README.md", export_file("README.md", lambda data: data + b"accuracy: 100%")),
    "other stop ids": ("export/generation_config.json", export_file("generation_config.json", lambda d: d.replace(b"_id", b"_ix", 1))),
    "code in the export": (
        "modeling.py",
        then_receipts(lambda f, run: ((run / "export/modeling.py").write_text(""), f.remanifest(run, "export"))),
    ),
    "a broken tokenizer": ("export", export_file("tokenizer.json", lambda data: b"{")),
    "a receipt that says otherwise": (
        "receipts/0001",
        lambda f, run: f.forge_receipt(run, lambda s, o: s["predicate"]["gates"][0].update(value=0.5)),
    ),
    "other counts in the receipt": (
        "receipts/0001",
        lambda f, run: f.forge_receipt(run, lambda s, o: s["predicate"]["counts"].update(updates_applied=999)),
    ),
    "a file left out of the receipt": (
        "receipts/0001",
        lambda f, run: f.forge_receipt(run, lambda s, o: s["predicate"]["evidence"].pop("metrics.jsonl")),
    ),
    "a receipt of the wrong shape": ("receipts/0001", lambda f, run: f.forge_receipt(run, lambda s, o: s.update(subject=None))),
    "a receipt under another name": (
        "receipts/0001",
        lambda f, run: next((run / "receipts").iterdir()).rename(run / "receipts" / f"0001-{'0' * 16}.json"),
    ),
    "a hard link": ("metrics.jsonl", lambda f, run: os.link(run / "metrics.jsonl", run.parent / "second-name")),
    "a link for a folder": ("checkpoints", lambda f, run: _link_folder(run)),
    **{f"a pipe for {name}": (name, pipe(name)) for name in ("ledger.jsonl", "metrics.jsonl", ".lease", "logs/origin.json")},
    "twins in case": ("Metrics.jsonl", lambda f, run: (run / "Metrics.jsonl").write_text("x")),
    "a name that talks to terminals": ("logs/", lambda f, run: (run / "logs" / "a\n\x1b[2Jok").write_text("x")),
    "an edited page": ("report.html", lambda f, run: f.replace(run / "report.html", b"</body>", b"<p>100%</p></body>")),
    "another origin": (
        "origin.json",
        then_receipts(lambda f, run: (run / "logs/origin.json").write_bytes(canonical({"base": "/", "plugin": "os"}))),
    ),
}  # fmt: skip


def _rows(run: Path) -> list[bytes]:
    return (run / "metrics.jsonl").read_bytes().splitlines()


def _retype(f, run: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = run / "rollouts/batch-000002.parquet"
    table = pq.read_table(path)
    place = table.schema.get_field_index("reward")
    pq.write_table(table.set_column(place, "reward", pa.array(["x"] * len(table))), path)
    f.events(run, "rollout_batch", lambda e: e.update(digest=file_digest(path)), batch=2)


def _no_parquet(f, run: Path) -> None:
    path = run / "rollouts/batch-000002.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    f.events(run, "rollout_batch", lambda e: e.update(digest=file_digest(path)), batch=2)


def _link_folder(run: Path) -> None:
    (run / "checkpoints").rename(run.parent / "elsewhere")
    (run / "checkpoints").symlink_to(run.parent / "elsewhere")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_an_attack_is_found_and_named(finished, copy_of, forging, name) -> None:
    expected, attack = {**QUICK, **SLOW}[name]
    run = copy_of(finished)
    attack(forging, run)
    found = audit(run)
    assert any(expected in fault for fault in found.faults), found.faults
    for fault in found.faults:
        assert fault.isprintable(), fault
        assert len(fault) < 600, fault
    checker.check(run)  # comes to an end, too
