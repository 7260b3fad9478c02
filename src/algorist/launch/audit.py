"""`algorist audit`: the files alone, then everything that can be computed again from the recipe in the contract."""

from pathlib import Path

from algorist.digest import sha256
from algorist.errors import AlgoristError, InputError
from algorist.launch.prepare import prepare, subject_of
from algorist.launch.run import read_run
from algorist.qualify.audit import Audit, Check, audit_files
from algorist.qualify.recompute import recompute
from algorist.record import commit
from algorist.record.run_folder import RunFolder
from algorist.stages.listener import Silent


def audit(
    path: Path,
    *,
    public_key: bytes | None = None,
    files_only: bool = False,
    sample: int = 4096,
    seed: int | None = None,
) -> Audit:
    """Check a run folder, or the export inside one; changes nothing.

    sample: stored responses that are graded again; seed: picks them (default: from the ledger's own bytes). Raises InputError
    where `path` is neither a run nor an export.
    """
    run = run_of(path)
    evidence, checks = audit_files(run, public_key=public_key)
    if evidence is not None and not files_only:
        seed = int(sha256(evidence.folder.ledger.read_bytes())[:12], 16) if seed is None else seed
        try:
            _, recipe, base, plugin = read_run(evidence.folder)
            prepared = prepare(recipe, base=base, plugin=plugin, listener=Silent())
        except AlgoristError as error:
            words = f"skipped: the recipe cannot be loaded here ({error})"
            checks.append(Check(name="computed again", faults=(), looked_at=words, skipped=True))
        else:
            try:
                checks += recompute(evidence, subject_of(prepared), sample=sample, seed=seed)
            finally:
                prepared.close()
    return Audit(run=run, checks=tuple(checks))


def run_of(path: Path) -> Path:
    """The run folder that a path stands for: itself, or the folder an export lies in."""
    if (path / "ledger.jsonl").is_file():
        return path
    if (path / commit.MANIFEST).is_file() and (path.resolve().parent / "ledger.jsonl").is_file():
        return path.resolve().parent
    if (path / commit.MANIFEST).is_file():
        commit.verify_directory(path)
        raise InputError(
            f"{path}: its files match its manifest, and the run it came from is not beside it, so nothing says how it was "
            "trained. Audit the run folder, or keep the export inside it."
        )
    return RunFolder.open(path).root
