"""Named moments at which a test kills this process, to show that a kill there loses nothing. Otherwise they do nothing.

ALGORIST_KILL_AT=commit.renamed#2    die the second time that moment is reached
"""

import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Final

VARIABLE: Final = "ALGORIST_KILL_AT"
MOMENTS: Final = (
    "write.begin",
    "write.written",
    "write.renamed",
    "commit.begin",
    "commit.written",
    "commit.manifest",
    "commit.synced",
    "commit.renamed",
    "append.begin",
    "append.torn",
    "append.written",
    "append.done",
    "prune.renamed",
)
"""write: a file put in place whole (rollouts, evaluations, LATEST, receipts); commit: a directory (checkpoints, export);
append: a line of ledger or metrics; prune: an old checkpoint is removed."""

_seen: Counter[str] = Counter()


def reach(moment: str, before: Callable[[], object] | None = None) -> None:
    """Die here where the environment says so. `before` does half a job first (a torn write)."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    assert moment in MOMENTS, f"moments are named in MOMENTS, got {moment}"
    _seen[moment] += 1
    name, _, number = wanted.partition("#")
    if name == moment and _seen[moment] == int(number or 1):
        if before is not None:
            before()
        os.kill(os.getpid(), signal.SIGKILL)
