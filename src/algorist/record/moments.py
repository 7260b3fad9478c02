"""Named moments at which a test kills this process or lets its disk fail, to show that nothing is lost. Otherwise nothing.

ALGORIST_KILL_AT=commit.renamed#2           die the second time that moment is reached
ALGORIST_FAIL_AT=append.begin#3=ENOSPC      from the third time on every moment meets a full disk
"""

import errno
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Final

KILL: Final = "ALGORIST_KILL_AT"
FAIL: Final = "ALGORIST_FAIL_AT"
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
    """Die or fail here where the environment says so. `before` does half a job first (a torn write)."""
    kill, fail = os.environ.get(KILL), os.environ.get(FAIL)
    if kill is None and fail is None:
        return
    assert moment in MOMENTS, f"moments are named in MOMENTS, got {moment}"
    _seen[moment] += 1
    if kill is not None and kill == f"{moment}#{_seen[moment]}":
        if before is not None:
            before()
        os.kill(os.getpid(), signal.SIGKILL)
    if fail is not None:
        when, _, cause = fail.partition("=")
        first, _, number = when.partition("#")
        if _seen[first] >= int(number):
            if before is not None:
                before()
            code = getattr(errno, cause)
            raise OSError(code, os.strerror(code))
