"""Whether two runs are the same run: a repetition, or one that was killed, paused and resumed, and one that never was."""

from pathlib import Path
from typing import Final

from algorist.record import ledger, metrics

_BY_LOGIC: Final = {"ledger.jsonl": ledger.logical_digest, "metrics.jsonl": metrics.logical_digest}
"""Hold times: compared without them."""
_OF_A_PROCESS: Final = ("receipts", "report.html", ".lease")
"""Hold times, or digests of files that do."""


def different(a: Path, b: Path) -> list[str]:
    """Files that two equal runs would share byte for byte and these do not, by name; one that only one of them has counts.

    Ledger and metrics are compared by logical digest. Raises InputError where one of those cannot be read.
    """
    files = [{p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()} for root in (a, b)]
    names = [name for name in sorted(files[0] | files[1]) if name.split("/")[0] not in _OF_A_PROCESS]
    return [name for name in names if name not in files[0] & files[1] or not _same(a, b, name)]


def _same(a: Path, b: Path, name: str) -> bool:
    digest = _BY_LOGIC.get(name)
    if digest is not None:
        return digest(a / name) == digest(b / name)
    return (a / name).read_bytes() == (b / name).read_bytes()
