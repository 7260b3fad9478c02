"""`algorist audit`: the files alone, then everything that can be computed again from the recipes in the contracts."""

import fcntl
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from algorist.digest import canonical, file_digest, sha256
from algorist.errors import AlgoristError, InputError
from algorist.launch.contract import make_contract
from algorist.launch.export import write_export
from algorist.launch.prepare import Prepared, prepare, subject_of
from algorist.policy import weights
from algorist.policy.build import build_policy
from algorist.policy.config import PolicyConfig
from algorist.qualify.audit import Audit, audit_files
from algorist.qualify.check import DAMAGED, look, plain, walk
from algorist.qualify.contract import differences
from algorist.qualify.evidence import Check, Evidence, run_check
from algorist.qualify.recompute import recompute
from algorist.qualify.rejudge import rejudge
from algorist.qualify.rescore import Again, answers, last_weights, load, replays, saved_positions
from algorist.qualify.retrain import retrain
from algorist.qualify.subject import Subject
from algorist.recipe.load import from_json
from algorist.record import commit
from algorist.record.ledger import EventKind
from algorist.record.run_folder import RunFolder
from algorist.stages.listener import Silent

Tell = Callable[[str], None]
_GIVEN: Final = ("policy", "parents", "problems", "reward")
"""Parts of a contract that say what a run begins with."""
_ELSEWHERE: Final = ("code", "software", "numerics", "verifier")
"""Parts that may differ where an audit is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How much is computed again, and from what; see `audit`."""

    sample: int
    updates: int
    seed: int | None
    base: Path | None
    plugin: str | None


def audit(
    path: Path,
    *,
    public_key: bytes | None = None,
    receipt: Path | None = None,
    files_only: bool = False,
    sample: int = 4096,
    updates: int = 32,
    seed: int | None = None,
    base: Path | None = None,
    plugin: str | None = None,
    tell: Tell = lambda _: None,
) -> Audit:
    """Check a run folder, the export inside one, or an export copied away from its run; changes nothing.

    receipt: for an export alone, the receipt that speaks of it. sample: stored responses that are graded again. updates:
    most steps that are trained again. seed: picks what is sampled (default: from the ledger's own bytes). base: folder that
    the recipe's relative paths start at (default: the one the run was started with). plugin: module with the run's own
    reward, imported only where it is named here: a run folder may be anybody's. tell: hears what is being done.
    Raises InputError where `path` is neither a run nor an export.
    """
    place, options = run_of(path), Options(sample=sample, updates=updates, seed=seed, base=base, plugin=plugin)
    tell("reading every file")
    if not (place / "contract.json").exists() and not (place / "ledger.jsonl").exists():
        return _export(place, public_key, receipt, files_only=files_only)
    if in_use(place / ".lease"):
        raise InputError(
            f"{place}: a process is writing to this run. Audit it when it has ended or paused, or audit a copy."
        )
    evidence, checks = audit_files(place, public_key=public_key)
    if evidence is not None and not files_only:
        for digest in evidence.contracts:
            found = _computed_again(evidence, digest, options, tell)
            several = f" (contract {digest[:8]})" if len(evidence.contracts) > 1 else ""
            checks += [
                Check(name=f"{c.name}{several}", faults=c.faults, looked_at=c.looked_at, skipped=c.skipped)
                for c in found
            ]
    return Audit(run=place, checks=tuple(checks))


def run_of(path: Path) -> Path:
    """The run folder that a path stands for (itself, or the one an export lies in), or an export without its run.

    Raises InputError where it is neither.
    """
    if (path / "ledger.jsonl").exists() or not (path / commit.MANIFEST).exists():
        return RunFolder.open(path).root
    run = path.resolve().parent
    return run if (run / "ledger.jsonl").is_file() and (run / "export").resolve() == path.resolve() else path


def in_use(lease: Path) -> bool:
    """True where a process holds the lock of a run; what the file says is nobody's word."""
    if not lease.is_file() or lease.is_symlink():
        return False
    with lease.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return False
    return False


def _computed_again(e: Evidence, contract: str, options: Options, tell: Tell) -> list[Check]:
    """Everything that needs problems, prompts, verifier or weights, under one of the run's contracts."""
    skipped = Check(name="computed again", faults=(), looked_at="", skipped=True)
    try:
        origin = json.loads((e.folder.logs / "origin.json").read_bytes())
        _ = (Path(origin["base"]), origin["plugin"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        return [_because(skipped, f"logs/origin.json does not say where the recipe lies ({error})")]
    if origin["plugin"] is not None and origin["plugin"] != options.plugin:
        words = f"its reward is code of the module {origin['plugin']!r}, imported only if you say so: --plugin {origin['plugin']}"
        return [_because(skipped, words)]
    tell("loading problems, policy and verifier")
    try:
        recipe = from_json(canonical(e.contracts[contract]["recipe"]))
        base = Path(origin["base"]) if options.base is None else options.base
        prepared = prepare(recipe, base=base, plugin=options.plugin, listener=Silent())
    except AlgoristError as error:
        return [_because(skipped, f"the recipe cannot be loaded here, try --base ({error})")]
    try:
        starts = run_check("what it began with", lambda: _starts(e, contract, prepared), e.contract_file(contract))
        if not starts.ok:
            return [starts, _because(skipped, "with other problems or weights nothing would come out the same")]
        return [starts, *_checks(e, contract, prepared, options, tell)]
    finally:
        prepared.close()


def _checks(e: Evidence, contract: str, prepared: Prepared, options: Options, tell: Tell) -> list[Check]:
    recipe, subject = prepared.recipe, subject_of(prepared)
    seed = int(sha256(e.folder.ledger.read_bytes())[:12], 16) if options.seed is None else options.seed
    again = Again(
        evaluate=recipe.evaluate, sft=recipe.sft, targets=prepared.targets, exact=_exact(e, contract, prepared),
        limit=options.updates, seed=seed, tell=tell,
    )  # fmt: skip
    ledger, kept = e.folder.ledger, e.folder.checkpoints
    tell("judging gates again")
    checks = [run_check("gates judged again", lambda: rejudge(e, subject, contract), ledger)]
    if recipe.rl is not None:
        try:
            checks += recompute(e, subject, contract, sample=options.sample, seed=seed, tell=tell)
        except (*DAMAGED, AlgoristError) as error:  # events of the wrong shape; single batches are guarded one by one
            words = f"{ledger}: holds what no run writes ({type(error).__name__}: {error})"
            checks.append(Check(name="batches", faults=(plain(words),), looked_at="stopped there"))
    checks += [
        run_check("log-probabilities", lambda: replays(e, subject, contract, again), kept),
        run_check("training again", lambda: retrain(e, subject, contract, again), kept),
        run_check("answers", lambda: answers(e, subject, contract, again), e.folder.evaluations),
    ]
    if contract == e.events[-1].contract:
        checks.append(run_check("last weights", lambda: last_weights(e, subject), kept))
        tell("exporting again")
        checks.append(run_check("export", lambda: _exported_again(e, contract, prepared, subject), e.folder.export))
    return checks


def _starts(e: Evidence, contract: str, prepared: Prepared) -> tuple[str, Iterator[str]]:
    """Everything that the contract names and its recipe gives: weights, parents, tokenizer, problems, reward, formulas."""
    stored, now = e.contracts[contract], make_contract(prepared)
    found = []
    for difference in differences(stored, now):
        name, _, values = difference.partition(": ")
        part = name.split(".")[0]
        new_words = not e.same_sources and (part not in _GIVEN or "None" in values.split(" -> "))
        if (
            part not in _ELSEWHERE and name != "policy.device" and not new_words
        ):  # other sources may name more, or otherwise
            found.append(f"{difference} (what the contract names -> what its recipe gives here)")
    others = [k for k in ("code", "software", "verifier") if stored.get(k) != now.get(k)]
    words = ", ".join(_GIVEN) + (f"; audited with other {', '.join(others)}" if others else "")
    return words, (f"{e.contract_file(contract)}: {fault}" for fault in found)


def _exported_again(e: Evidence, contract: str, prepared: Prepared, subject: Subject) -> tuple[str, list[str]]:
    """The export is, file by file, what recipe, contract and last checkpoint give."""
    saved = saved_positions(e)
    event = next((ev for ev in e.of(EventKind.CHECKPOINT) if ev.payload.get("name") == "export"), None)
    if event is None or not saved:
        return "skipped: the run has no export", []
    if e.contracts[contract].get("software") != make_contract(prepared)["software"]:
        return "skipped: other libraries than those of the run would write other files", []
    with tempfile.TemporaryDirectory(prefix="algorist-audit-") as folder:
        policy = load(subject, saved[-1])
        write_export(prepared, policy, Path(folder), contract=event.contract, applied=event.policy_version)
        mine = {p.relative_to(folder).as_posix(): file_digest(p) for p in Path(folder).rglob("*") if p.is_file()}
    listed = {name: entry.sha256 for name, entry in commit.read_manifest(e.folder.export).files.items()}
    ours = set() if e.same_sources else {"README.md", "algorist.json"}  # what other sources write otherwise
    odd = sorted(name for name in (mine.keys() | listed.keys()) - ours if mine.get(name) != listed.get(name))
    faults = [f"{e.folder.export / name}: is not what recipe, contract and {saved[-1].name} give" for name in odd]
    return f"{len(mine)} files made again from {saved[-1].name}", faults


def _exact(e: Evidence, contract: str, prepared: Prepared) -> bool:
    """Everything that decides bits is as it was."""
    stored, now = e.contracts[contract], make_contract(prepared)
    same = all(stored.get(name) == now[name] for name in ("numerics", "software"))
    return same and e.same_sources and prepared.policy.device.type == "cpu"


def _because(check: Check, words: str) -> Check:
    return Check(name=check.name, faults=(), looked_at=f"skipped: {words}", skipped=True)


def _export(place: Path, key: bytes | None, receipt: Path | None, *, files_only: bool) -> Audit:
    """An export without its run: whole, and of the weights it names; with a receipt, of which run."""
    if receipt is not None and not receipt.is_file():
        raise InputError(f"{receipt}: must be a receipt of the export's run, there is no such file")
    checks = [Check.of(name, part) for name, part in look(walk(place), key, receipt).items()]
    if all(check.ok for check in checks) and not files_only:

        def judge() -> tuple[str, list[str]]:
            facts = json.loads((place / "algorist.json").read_bytes())
            mine = weights.weights_digest(
                build_policy(PolicyConfig(path="."), base=place, texts=(), seed=0), value_head=False
            )
            odd = f"{place / 'algorist.json'}: names the weights {str(facts['weights'])[:16]}, the export holds {mine[:16]}"
            return "the model, opened and its weights digested", [odd] if facts["weights"] != mine else []

        checks.append(run_check("weights", judge, place / "algorist.json"))
        words = "skipped: the run is not here; chain, rollouts, rewards and losses are checked by an audit of the run folder"
        checks.append(Check(name="how it was trained", faults=(), looked_at=words, skipped=True))
    return Audit(run=place, checks=tuple(checks))
