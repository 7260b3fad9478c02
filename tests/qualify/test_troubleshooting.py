"""docs/troubleshooting.md, line by line: each message is brought about and read as printed; where it is cheap, the repair is typed.

A row of the page names a symptom; CASES holds how to bring it about, REPAIRS what the page says to type, after which the
message must be gone. In a message, `...` and words in capitals stand for anything.
"""

import contextlib
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from algorist.cli import main
from algorist.flow import Rollout
from algorist.launch.prepare import prepare
from algorist.policy.config import NewTokenizerConfig
from algorist.policy.tokenizer import train_tokenizer
from algorist.recipe.load import load
from algorist.rollout.engine import SamplingPlan
from algorist.stages.listener import Silent

from .conftest import load_benchmark

FAULTS = load_benchmark("faults")
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One row of one table of the page."""

    symptom: str
    says: tuple[str, ...]
    """What is printed, as the page writes it: one of these."""
    code: int | None
    """Exit code, where the page names one."""


def lines() -> list[Line]:
    found = []
    for text in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in text.strip().strip("|").split(" | ")]
        if text.startswith("| ") and len(cells) == 3 and "`" in cells[1]:
            code = re.search(r"\((\d+)\)$", cells[0])
            symptom = re.sub(r" \(\d+\)$", "", cells[0])
            found.append(
                Line(
                    symptom=symptom, says=tuple(re.findall(r"`([^`]+)`", cells[1])), code=int(code[1]) if code else None
                )
            )
    return found


def pattern(says: str) -> str:
    """The page's way of writing a message as a pattern."""
    pieces = re.split(r"(\.\.\.|\b[A-Z][A-Z0-9_]*\b)", says)
    return "".join(r".*?" if i % 2 else re.escape(" ".join(piece.split())) for i, piece in enumerate(_spaced(pieces)))


def _spaced(pieces: list[str]) -> list[str]:
    return [f" {p} " if p == " " else p for p in pieces]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a call came to."""

    code: int
    text: str


class Bench:
    """A policy that solves some problems, its recipe, and a place to run in."""

    def __init__(self, recipe: Path, place: Path) -> None:
        self.recipe, self.place, self.out = recipe, place, place / "run"

    def type(self, *arguments: str) -> Told:
        """One call of `algorist`, in this process."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(
                [*arguments, *(["--threads", "1"] if arguments[0] in ("preflight", "run", "calibrate") else [])]
            )
        return Told(code=code, text=out.getvalue())

    def preflight(self, *overrides: str, plugin: str | None = None, recipe: Path | None = None) -> Told:
        more = ["--plugin", plugin] if plugin else []
        return self.type("preflight", str(recipe or self.recipe), *_sets(overrides), *more)

    def run(self, *overrides: str, recipe: Path | None = None) -> Told:
        return self.type("run", str(recipe or self.recipe), "--out", str(self.out), *_sets(overrides))

    def tampered(self, *overrides: str, **kwargs: object) -> Told:
        """A run with something wrong behind its back."""
        fault = FAULTS.Fault("row", "", (), overrides=overrides, **kwargs)
        caught = FAULTS.inject(fault, self.recipe, self.out)
        return Told(code=caught.code, text=caught.message)

    def fault(self, name: str) -> Told:
        """A run with one of the deliberate faults of benchmarks/faults.py."""
        (fault,) = (f for f in FAULTS.FAULTS if f.name == name)
        caught = FAULTS.inject(fault, self.recipe, self.out)
        return Told(code=caught.code, text=caught.message)

    def recipe_of(self, text: str) -> Path:
        file = self.place / "own.yaml"
        file.write_text(text)
        return file


def _sets(overrides: tuple[str, ...]) -> list[str]:
    return [part for text in overrides for part in ("--set", text)]


CASES: dict[str, Callable[[Bench], Told]] = {}
REPAIRS: dict[str, Callable[[Bench, str], Told]] = {}
"""What the page says to type: given the bench and what was printed."""


def case(symptom: str) -> Callable[[Callable[[Bench], Told]], Callable[[Bench], Told]]:
    def add(function: Callable[[Bench], Told]) -> Callable[[Bench], Told]:
        assert symptom not in CASES, symptom
        CASES[symptom] = function
        return function

    return add


def repair(symptom: str) -> Callable[[Callable[[Bench, str], Told]], Callable[[Bench, str], Told]]:
    def add(function: Callable[[Bench, str], Told]) -> Callable[[Bench, str], Told]:
        REPAIRS[symptom] = function
        return function

    return add


# -- refused before it trains ---------------------------------------------------------------------------------------

BAD = "problems.source={kind: jsonl, path: bad.jsonl}"
case("many golds unusable")(lambda b: b.preflight(BAD))
repair("many golds unusable")(lambda b, _: b.preflight(BAD, "qualify.data.max_refused_share=0.5"))

case("held-out problems in training")(lambda b: b.tampered(tamper=FAULTS.data(heldout=lambda p: p.problems.train[:5])))

case("exclusion list missing")(lambda b: b.preflight("qualify.data.exclusions=[absent.txt]"))
repair("exclusion list missing")(lambda b, _: b.preflight("qualify.data.exclusions=[]"))


@case("right answers judged wrong")
def _(b: Bench) -> Told:
    return b.preflight(
        "prompt.answer_format=boxed", recipe=b.recipe_of(FAULTS.START.replace("target: gold", "target: solution"))
    )


@repair("right answers judged wrong")
def _(b: Bench, _printed: str) -> Told:
    return b.preflight(
        "prompt.answer_format=last_number", recipe=b.recipe_of(FAULTS.START.replace("target: gold", "target: solution"))
    )


def _plugin(b: Bench, name: str, body: str) -> Told:
    """A reward of one's own in a module of its own (a module is imported once)."""
    (b.place / f"{name}.py").write_text(f"def {name}(problem, rollout, verdict):\n    {body}\n")
    sys.path.insert(0, str(b.place))
    try:
        return b.preflight(f"reward.name={name}", plugin=name)
    finally:
        sys.path.remove(str(b.place))


case("own reward constant or reversed")(lambda b: _plugin(b, "reward_constant", "return 1.0"))
repair("own reward constant or reversed")(
    lambda b, _: _plugin(b, "reward_right", "return float(verdict.verdict == 'correct')")
)
case("own reward raises")(lambda b: _plugin(b, "reward_raising", "raise KeyError('answer')"))
repair("own reward raises")(
    lambda b, _: _plugin(b, "reward_mended", "return 1.0 if verdict.verdict == 'correct' else 0.0")
)

LONG = "problems.source={kind: jsonl, path: %s}"


def _long(b: Bench) -> str:
    rows = [
        {"question": f"{a % 9} + {a // 9}" + " + 1" * (4 if a % 3 else 0), "answer": str(a % 9 + a // 9)}
        for a in range(80)
    ]
    (b.place / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return LONG % (b.place / "long.jsonl")


case("most prompts dropped")(lambda b: b.preflight(_long(b), "rl.sampling.response_tokens=12"))
repair("most prompts dropped")(lambda b, _: b.preflight(_long(b), "rl.sampling.response_tokens=4"))

case("prompts end at once")(
    lambda b: b.tampered(tamper=FAULTS.prompts_of(lambda p: replace(p, token_ids=(*p.token_ids, 1))))
)


@case("ids outside the vocabulary")
def _(b: Bench) -> Told:
    folder = Path(shutil.copytree(b.recipe.parent / "start", b.place / "mixed"))
    (folder / "manifest.json").unlink()  # with it the swap is told before anything is loaded
    train_tokenizer(NewTokenizerConfig(), ["".join(map(chr, range(32, 123)))], context=32).save_pretrained(folder)
    return b.preflight(f"policy.path={folder}")


repair("ids outside the vocabulary")(lambda b, _: b.preflight(f"policy.path={b.recipe.parent / 'start'}"))

STRANGER = f'qualify.parents.weights="{"0" * 64}"'
case("another checkpoint than declared")(lambda b: b.preflight(STRANGER))
repair("another checkpoint than declared")(lambda b, _: b.preflight("qualify.parents.weights=null"))

case("wrong things frozen")(
    lambda b: b.tampered('qualify.parameters.frozen=["*embed_tokens*"]', tamper=FAULTS.weights(FAULTS._thaw))
)
case("pattern freezes nothing")(lambda b: b.preflight('qualify.parameters.frozen=["*.router.*"]'))


@repair("pattern freezes nothing")
def _(b: Bench, printed: str) -> Told:
    (name,) = re.findall(r"for example, (\S+?),", printed)
    return b.preflight(f'qualify.parameters.frozen=["{name}"]')


case("trainer needs more than its cap")(lambda b: b.preflight("qualify.memory.trainer_allocator_cap_gib=0.05"))


@repair("trainer needs more than its cap")
def _(b: Bench, printed: str) -> Told:
    (low,) = re.findall(r"trainer_allocator_cap_gib between\s+([\d.]+)", printed)
    return b.preflight(f"qualify.memory.trainer_allocator_cap_gib={float(low) + 0.2}")


case("others need the device")(
    lambda b: b.preflight("qualify.memory={trainer_allocator_cap_gib: 4000, driver_free_memory_gib: 64}")
)
repair("others need the device")(
    lambda b, _: b.preflight("qualify.memory={trainer_allocator_cap_gib: 2, driver_free_memory_gib: 0.1}")
)
case("no cap is possible")(
    lambda b: b.preflight(
        f"qualify.memory={{trainer_allocator_cap_gib: 198, driver_free_memory_gib: 64, declared: {FAULTS.DECLARED}}}"
    )
)
repair("no cap is possible")(
    lambda b, _: b.preflight(
        "qualify.memory={trainer_allocator_cap_gib: 190, driver_free_memory_gib: 64, declared: "
        "{total_gib: 268, free_gib: 256, peak_gib: 180}}"
    )
)
case("cached decoding differs")(
    lambda b: b.tampered(tamper=FAULTS.engine(change=FAULTS.rescored(temperature=1.0), always=True))
)

# -- the first batch ------------------------------------------------------------------------------------------------

case("all responses cut off")(lambda b: b.preflight("rl.sampling.response_tokens=1"))
repair("all responses cut off")(lambda b, _: b.preflight("rl.sampling.response_tokens=4"))
case("no answer can be read")(lambda b: b.preflight("prompt.answer_format=boxed"))
repair("no answer can be read")(lambda b, _: b.preflight("prompt.answer_format=first_line"))
HARD = "problems.source={kind: jsonl, path: hard.jsonl}"
case("too hard")(lambda b: b.preflight(HARD))
repair("too hard")(
    lambda b, _: b.preflight("problems.source={kind: arithmetic, families: [{name: add, digits: [1, 1]}]}")
)


@case("too easy")
def _(b: Bench) -> Told:
    """Golds that are what the policy says, asked so cold that it always says that."""
    prepared = prepare(load(b.recipe).recipe, base=b.recipe.parent, listener=Silent())
    prepared.close()
    asked = [p for p in prepared.problems.train if p.id in prepared.task.prompts]
    plan = SamplingPlan(temperature=0.0, response_tokens=4, stop_ids=prepared.task.stop_ids)
    prompts = [prepared.task.prompts[p.id] for p in asked]
    said = prepared.engine.generate(prompts, num_samples=1, plan=plan, policy_version=0, seed=0)
    rows = [{"question": p.question, "answer": r.text} for p, (r,) in zip(asked, said, strict=True) if r.text.isdigit()]
    file = b.place / "easy.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return b.preflight(f"problems.source={{kind: jsonl, path: {file}}}", "rl.sampling.temperature=0.001")


case("no rewards at all")(lambda b: b.fault("engine fails on every row"))

# -- replay ---------------------------------------------------------------------------------------------------------

case("stored at another temperature")(lambda b: b.fault("temperature not applied to stored log-probs"))
case("top-p in the sampler only")(lambda b: b.fault("top-p mask missing in the trainer"))
case("shifted by one")(lambda b: b.fault("log-probs shifted to the next token"))
case("another prompt")(lambda b: b.fault("sampler drops the last prompt token"))
case("bfloat16 head")(lambda b: b.fault("bfloat16 head in the sampler"))
case("stale weights")(lambda b: b.fault("stale weights in the sampler"))
case("text encoded again")(lambda b: b.fault("re-tokenised text"))


@case("nothing usual")
def _(b: Bench) -> Told:
    """Differences without any order."""

    def noise(prepared: object, r: Rollout) -> Rollout:
        return replace(
            r, behaviour_logp=tuple(x - 0.7 * ((7 * t + 3 * r.sample) % 5) for t, x in enumerate(r.behaviour_logp))
        )

    return b.tampered(tamper=FAULTS.engine(change=noise))


case("version stamps")(lambda b: b.fault("stale policy version stamps"))

# -- it ran, and something is odd -----------------------------------------------------------------------------------

case("nothing was learned")(lambda b: b.run("qualify.signal.action=report", HARD))
case("verifier changes mid-run")(lambda b: b.fault("verifier dies in the middle of a run"))


@repair("nothing was learned")
def _(b: Bench, _printed: str) -> Told:
    told = b.type("why", str(b.out))
    assert "flat" in told.text, told.text
    shutil.rmtree(b.out)
    return b.run()


PAUSE = "qualify.watch=[{figure: reward/mean, above: -1, batches: 3, action: pause}]"


def _paused(b: Bench) -> Told:
    """A run that a rule paused after three batches of four."""
    return b.run(PAUSE)


case("paused by a rule")(_paused)


@repair("paused by a rule")
def _(b: Bench, _printed: str) -> Told:
    return b.type("resume", str(b.out), "--amend", "--set", "qualify.watch=[]")


@case("resume refuses")
def _(b: Bench) -> Told:
    data = b.place / "problems.jsonl"
    rows = [{"question": f"{a} + {c}", "answer": str(a + c)} for a in range(10) for c in range(10)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert b.run(PAUSE, f"problems.source={{kind: jsonl, path: {data}}}").code == 75
    shutil.copy(data, b.place / "kept.jsonl")
    data.write_text(data.read_text().replace("1 + 2", "1 + 2 + 0"))
    return b.type("resume", str(b.out))


@repair("resume refuses")
def _(b: Bench, _printed: str) -> Told:
    shutil.copy(b.place / "kept.jsonl", b.place / "problems.jsonl")
    return b.type("resume", str(b.out))


@case("a checkpoint is damaged")
def _(b: Bench) -> Told:
    assert _paused(b).code == 75
    weights = b.out / "checkpoints" / "step-3" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    return b.type("resume", str(b.out))


@case("ledger edited")
def _(b: Bench) -> Told:
    assert _paused(b).code == 75
    ledger = b.out / "ledger.jsonl"
    shutil.copy(ledger, b.place / "ledger.jsonl")
    ledger.write_text(ledger.read_text().replace('"mixed":', '"mixed": ', 1))
    return b.type("resume", str(b.out))


@repair("ledger edited")
def _(b: Bench, _printed: str) -> Told:
    shutil.copy(b.place / "ledger.jsonl", b.out / "ledger.jsonl")
    return b.type("resume", str(b.out))


@case("audit names a file")
def _(b: Bench) -> Told:
    assert b.run().code == 0
    page = b.out / "report.html"
    page.write_text(page.read_text() + " ")
    return b.type("audit", str(b.out))


@repair("audit names a file")
def _(b: Bench, _printed: str) -> Told:
    assert b.type("report", str(b.out)).code == 0
    return b.type("audit", str(b.out))


@case("killed")
def _(b: Bench) -> Told:
    call = [
        sys.executable,
        "-m",
        "algorist",
        "run",
        str(b.recipe),
        "--out",
        str(b.out),
        "--threads",
        "1",
        "--set",
        "rl.updates=500",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(call, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not list((b.out / "checkpoints").glob("step-*")) and time.monotonic() < until:
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return b.type("why", str(b.out))


@repair("killed")
def _(b: Bench, _printed: str) -> Told:
    told = b.type("resume", str(b.out), "--amend", "--set", "rl.updates=12")
    return told if told.code else b.type("why", str(b.out))


@case("folder in use")
def _(b: Bench) -> Told:
    assert _paused(b).code == 75
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys, time\nfrom pathlib import Path\nfrom algorist.record.run_folder import RunFolder\n"
         "with RunFolder.open(Path(sys.argv[1])).lease():\n print('held', flush=True)\n time.sleep(60)", str(b.out)],
        stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    try:
        assert holder.stdout.readline() == b"held\n"
        return b.type("resume", str(b.out))
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@repair("folder in use")
def _(b: Bench, _printed: str) -> Told:
    return b.type("resume", str(b.out))


@case("signing fails")
def _(b: Bench) -> Told:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALGORIST_SIGNING_KEY", str(b.place / "absent.key"))
        patch.setitem(sys.modules, "cryptography", None)
        return b.run()


@case("disk full")
def _(b: Bench) -> Told:
    usage = shutil.disk_usage(b.place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000 if b.out.exists() else usage.free))
        return b.run()


repair("disk full")(lambda b, _: b.type("resume", str(b.out)))


@case("disk read-only or failing")
def _(b: Bench) -> Told:
    real = os.replace

    def refuse(source: object, target: object, **kwargs: object) -> None:
        if "step-2" in str(target):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(target))
        real(source, target, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        patch.setattr(os, "rename", refuse)
        return b.run()


repair("disk read-only or failing")(lambda b, _: b.type("resume", str(b.out)))

SLOW = {
    "killed", "folder in use", "stored at another temperature", "top-p in the sampler only", "shifted by one", "another prompt",
    "bfloat16 head", "stale weights", "text encoded again", "nothing usual", "version stamps",
}  # fmt: skip
"""Those that start a second process, and those that test_faults.py brings about too."""


@pytest.fixture
def bench(start_recipe, tmp_path) -> Bench:
    return Bench(start_recipe, tmp_path)


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    "line", [pytest.param(x, id=x.symptom, marks=[pytest.mark.slow] if x.symptom in SLOW else []) for x in lines()]
)
def test_the_message_is_printed_as_the_page_says_and_its_repair_works(line, bench) -> None:
    assert line.symptom in CASES, "say in this file how to bring it about"
    told = CASES[line.symptom](bench)
    assert any(re.search(pattern(says), plain(told.text)) for says in line.says), f"{line.says}\nprinted: {told.text}"
    if line.code is not None:
        assert told.code == line.code, told.text
    if line.symptom in REPAIRS:
        mended = REPAIRS[line.symptom](bench, told.text)
        assert mended.code == 0, mended.text
        assert not any(re.search(pattern(says), plain(mended.text)) for says in line.says), mended.text


def test_every_case_stands_on_the_page_once_and_there_are_more_than_forty() -> None:
    symptoms = [line.symptom for line in lines()]
    assert len(symptoms) == len(set(symptoms)) >= 40
    assert set(CASES) == set(symptoms)
