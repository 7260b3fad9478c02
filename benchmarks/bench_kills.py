"""End a run in every way a machine can end it, resume it, and compare it with a run that nothing ever happened to.

    python benchmarks/bench_kills.py [--random 100] [--out benchmarks/results/kills.json]

SIGKILL at named moments of every stage and at random times, again while recovering, and inside an amendment; a disk that fails
at each moment; SIGTERM; SIGSTOP and SIGCONT. Everything that two equal runs share must then be equal byte for byte: weights,
optimizer, rollouts, evaluations, export, contract, and ledger and metrics without their wall-clock values.

Each process is a fork of this one, which has imported everything and holds no threads: SIGKILL and the files are real, and a
run takes a second. `--jobs` such processes work side by side, each with one thread.
"""

import argparse
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECIPE = """
name: kills
policy: {new: {hidden_size: 32, intermediate_size: 64, num_layers: 2, num_heads: 4, context: 32}}
problems:
  source: {kind: arithmetic, families: [{name: add, digits: [1, 1]}]}
  heldout: {count: 8}
  sft_count: 40
prompt: {format: "{question}=", target: "{answer}", answer_format: first_line}
sft: {steps: 16, batch_size: 32, target: gold, optimizer: {lr: 2.0e-2}}
rl:
  updates: 6
  prompts_per_batch: 4
  group_size: 4
  sampling: {response_tokens: 4}
  objective: {name: grpo, beta: 0.04}   # a reference policy, so that checkpoints hold one
  optimizer: {lr: 2.0e-3}
  evaluate_every: 3
  replay: {every: 2}
evaluate: {samples: 2, ks: [1, 2], bootstrap: 100}
record: {checkpoint_every: 3}
qualify: {signal: {action: report}}
"""
AMENDMENT = ("evaluate.samples=4", "evaluate.ks=[1, 4]")
STAGES = ("start", "sft", "evaluation", "rl", "end")
"""end: gates after training, export, receipt, report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to end a run."""

    how: str
    """kill, again (a kill in the resume), amend (a kill in an amendment), fail (the disk), term, stop."""
    at: str
    """MOMENT#N: the N-th time a named moment is reached, with =ERROR for a disk; or seconds; or both."""
    stage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of it."""

    how: str
    kill: str
    stage: str
    reached: bool
    """False where the run was over before."""
    resumes: int
    different: list[str]
    """Files in which it differs from the run that nothing happened to."""
    faults: list[str] = field(default_factory=list)
    """A wrong exit code, something half written."""


def forked(work: Callable[[], None], then: Callable[[int], None] = lambda pid: None) -> int:
    """Run `work` in a fork, `then` with its process number here; its exit status (negative: the signal that ended it)."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException as error:  # noqa: BLE001 - the boundary of the child process
            code = getattr(error, "exit_code", 1)
            if code != 75:
                traceback.print_exc()
        finally:
            os._exit(code)
    with contextlib.suppress(ProcessLookupError):
        then(child)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def after(seconds: float, *numbers: int, pause_s: float = 0.5) -> Callable[[int], None]:
    """Wait, then send the signals with pauses between them."""

    def send(pid: int) -> None:
        time.sleep(seconds)
        for index, number in enumerate(numbers):
            time.sleep(pause_s if index else 0)
            os.kill(pid, number)

    return send


def start(recipe: Path, out: Path, **environment: str) -> None:
    from algorist.cli.common import stop_on_request
    from algorist.launch.run import run
    from algorist.recipe.load import load
    from algorist.stages.listener import Silent

    os.environ.update(environment)
    with stop_on_request(lambda message: None) as asked:
        run(load(recipe), out, listener=Silent(), stop_requested=asked)


def go_on(out: Path, amend: tuple[str, ...] = (), **environment: str) -> None:
    from algorist.launch.run import resume
    from algorist.stages.listener import Silent

    os.environ.update(environment)
    resume(out, listener=Silent(), amend=bool(amend), overrides=amend)


def finish(recipe: Path, out: Path, amend: tuple[str, ...] = ()) -> int:
    """Resume until the run is closed, as a person would: `run` where there is no contract yet. Returns the attempts."""
    for attempt in range(1, 20):
        begun = (out / "contract.json").is_file()
        if forked(lambda: go_on(out, amend) if begun else start(recipe, out)) == 0:  # noqa: B023
            return attempt
    raise SystemExit(f"{out}: could not be finished")


def stop_early(recipe: Path, out: Path) -> None:
    """A run that a person stopped after its fifth step."""
    from algorist.launch.run import run
    from algorist.recipe.load import load
    from algorist.stages.listener import Silent

    calls = iter(range(1000))
    assert forked(lambda: run(load(recipe), out, listener=Silent(), stop_requested=lambda: next(calls) >= 4)) == 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The runs to compare with, and how to make a new one meet a case."""

    folder: Path
    recipe: Path
    whole: Path
    amended: Path
    """Stopped after its fifth step, then amended and finished."""

    def meet(self, index: int, case: Case) -> Row:
        """Let a new run meet `case`, finish it, compare it, and remove it where all is well."""
        from algorist.record.twins import different

        out, faults = self.folder / f"run-{index}", list[str]()
        status = self._end(out, case)
        right = {"fail": 75, "term": 75, "stop": 0}.get(case.how, -signal.SIGKILL)
        if status not in (0, right):
            faults.append(f"exit status {status}")
        if case.how in ("fail", "term") and out.is_dir():
            faults += [f"half written: {p.name}" for p in out.rglob(".*") if ".tmp-" in p.name]
        amend = AMENDMENT if case.how == "amend" else ()
        resumes = finish(self.recipe, out, amend) if status else 0
        found = different(self.amended if amend else self.whole, out)
        if not found and not faults:
            shutil.rmtree(out)
        return Row(
            how=case.how, kill=case.at, stage=case.stage, reached=status == right, resumes=resumes, different=found,
            faults=faults,
        )  # fmt: skip

    def _end(self, out: Path, case: Case) -> int:
        match case.how:
            case "fail":
                return forked(lambda: start(self.recipe, out, ALGORIST_FAIL_AT=case.at))
            case "amend":
                stop_early(self.recipe, out)
                return forked(lambda: go_on(out, AMENDMENT, ALGORIST_KILL_AT=case.at))
            case "again":
                seconds, moment = case.at.split()
                forked(lambda: start(self.recipe, out), after(float(seconds), signal.SIGKILL))
                again = go_on if (out / "contract.json").is_file() else functools.partial(start, self.recipe)
                return forked(lambda: again(out, ALGORIST_KILL_AT=moment))
            case "kill" if "#" in case.at:
                return forked(lambda: start(self.recipe, out, ALGORIST_KILL_AT=case.at))
        numbers = {"kill": (signal.SIGKILL,), "term": (signal.SIGTERM,), "stop": (signal.SIGSTOP, signal.SIGCONT)}
        return forked(lambda: start(self.recipe, out), after(float(case.at), *numbers[case.how]))


def prepare(folder: Path) -> tuple[Bench, float, dict[tuple[str, str], tuple[int, int]]]:
    """The runs to compare with; seconds of one; (stage, moment) -> (first, last) time it is reached there."""
    import torch

    from algorist.launch.run import run
    from algorist.qualify import contract
    from algorist.recipe.load import load
    from algorist.record import moments
    from algorist.stages.listener import Silent
    from algorist.verify.identity import version

    contract.source_digest(), contract.provenance(), version()  # read once: an edit meanwhile must not look like one
    torch.set_num_threads(1)
    bench = Bench(folder=folder, recipe=folder / "recipe.yaml", whole=folder / "whole", amended=folder / "amended")
    bench.recipe.write_text(RECIPE)
    run(load(bench.recipe), folder / "warm", listener=Silent())  # here, so that every fork has imported everything
    began = time.monotonic()
    assert forked(lambda: start(bench.recipe, bench.whole)) == 0, "the run to compare with must finish"
    whole_s = time.monotonic() - began
    stop_early(bench.recipe, bench.amended)
    assert forked(lambda: go_on(bench.amended, AMENDMENT)) == 0, "and the amended one"
    os.environ[moments.KILL] = "none#0"  # counts, and kills nothing
    ear = Counting()
    run(load(bench.recipe), folder / "counted", listener=ear)
    del os.environ[moments.KILL]
    ear.note("")
    moments._seen.clear()
    return bench, whole_s, ear.spans


class Counting:
    """A listener that knows in which stage each named moment is reached for the how-many-th time."""

    def __init__(self) -> None:
        self.stage = "start"
        self.before: Counter[str] = Counter()
        self.spans: dict[tuple[str, str], tuple[int, int]] = {}

    def note(self, stage: str) -> None:
        """`stage` begins; what was reached since the last one belongs to that."""
        from algorist.record import moments

        now = Counter(moments._seen)
        for moment in now - self.before:
            first, _ = self.spans.get((self.stage, moment), (self.before[moment] + 1, 0))
            self.spans[self.stage, moment] = (first, now[moment])
        self.stage, self.before = stage, now

    def begin(self, stage: str, total: int) -> None:
        self.note(stage)

    def advance(self, stage: str, done: int, numbers: object) -> None:
        if stage != self.stage:
            self.note(stage)  # an evaluation between two batches is over

    def say(self, message: str) -> None:
        if message.startswith("evaluating"):
            self.note("evaluation")
        elif message.startswith("evaluated (after)"):
            self.note("end")


def cases(options: argparse.Namespace, spans: dict[tuple[str, str], tuple[int, int]], whole_s: float) -> list[Case]:
    """Every way to end a run, in a fixed order."""
    dice = random.Random(options.seed)
    if options.kills is not None:
        return [Case(how="kill", at=kill) for kill in options.kills]
    ends = [(stage, f"{moment}#{n}") for (stage, moment), span in spans.items() for n in dict.fromkeys(span)]
    moments = sorted({moment for _, moment in spans})
    causes = ("ENOSPC", "EDQUOT", "EIO", "EROFS")
    found = [Case(how="kill", at=at, stage=stage) for stage, at in ends]
    found += [Case(how="fail", at=f"{at}={causes[i % 4]}", stage=stage) for i, (stage, at) in enumerate(ends)]
    found += [
        Case(how="again", at=f"{dice.uniform(0, whole_s):.3f} {moment}#{n}") for moment in moments for n in (1, 2)
    ]
    found += [Case(how="amend", at=f"{moment}#{n}") for moment in moments[:7] + moments[-3:] for n in (1, 2)]
    found += [
        Case(how=how, at=f"{dice.uniform(0, whole_s):.3f}") for how in ("term", "stop") for _ in range(options.signals)
    ]
    found += [Case(how="kill", at=f"{dice.uniform(0, whole_s):.3f}") for _ in range(options.random)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, default=100, help="kills at random times")
    parser.add_argument("--signals", type=int, default=8, help="SIGTERMs, and SIGSTOPs, at random times")
    parser.add_argument("--kills", nargs="*", metavar="MOMENT#N", help="these kills instead of all cases")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    bench, whole_s, spans = prepare(folder)
    todo = list(enumerate(cases(options, spans, whole_s)))

    def work(job: int) -> None:
        with (folder / f"rows-{job}").open("w") as file:
            for index, case in todo[job :: options.jobs]:
                row = asdict(bench.meet(index, case))
                print(json.dumps({"index": index, **row}), file=file, flush=True)
                print(json.dumps(row), flush=True)

    jobs = [os.fork() or (work(job), os._exit(0)) for job in range(options.jobs)]
    failed = [pid for pid in jobs if os.waitpid(pid, 0)[1]]
    assert not failed, "every job must come to its end"
    lines = [
        json.loads(line) for job in range(options.jobs) for line in (folder / f"rows-{job}").read_text().splitlines()
    ]
    rows = [{k: v for k, v in row.items() if k != "index"} for row in sorted(lines, key=lambda row: row["index"])]
    reached = [row for row in rows if row["reached"]]
    named = [row for row in reached if row["how"] == "kill" and "#" in row["kill"]]
    result = {
        "named_moments": len({row["kill"].split("#")[0] for row in named}),
        "named_kills": len(named),
        "random_kills": sum(row["how"] == "kill" for row in reached) - len(named),
        **{
            f"{how}_cases": sum(row["how"] == how for row in reached)
            for how in ("again", "amend", "fail", "term", "stop")
        },
        "not_equal": sum(bool(row["different"]) for row in rows),
        "faults": sum(len(row["faults"]) for row in rows),
        "seconds_of_one_run": round(whole_s, 2),
        "minutes": round((time.monotonic() - began) / 60, 1),
        "seed": options.seed,
        "rows": rows,
    }
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print({k: v for k, v in result.items() if k != "rows"})
    return 1 if result["not_equal"] or result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
