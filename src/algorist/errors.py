"""One error tree. Every error a user can cause says what must hold, what was got, where, and what to do.

AlgoristError                      exit 1   something Algorist did not expect
├── InputError                     exit 2   a recipe, a data file, a model folder or a command line is wrong
│   └── RecipeError                exit 2   with file:line and the nearest key
├── AdmissionRefused               exit 3   the machine does not have what the contract asks for
├── GateFailed                     exit 4   a check that the run promised did not hold
├── ResumeMismatch                 exit 5   the run folder belongs to another contract, or its files disagree
└── Stopped                        exit 75  ended before the run did, on request or by a watch rule, after committing
    └── Paused                     exit 75  the disk is full, read-only or failing; what is committed stays
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar


class AlgoristError(Exception):
    """Base of all errors that Algorist raises on purpose. `exit_code` is what the command line answers with."""

    exit_code: ClassVar[int] = 1


class InputError(AlgoristError):
    """What the user gave cannot be used: recipe, data, model folder, command line."""

    exit_code = 2


class RecipeError(InputError):
    """A recipe line is wrong.

    >>> print(RecipeError("rl.group_size must be >= 2 for grpo: got 1", path=Path("q.yaml"), line=14, fix="Set 2 or more."))
    q.yaml:14: rl.group_size must be >= 2 for grpo: got 1. Set 2 or more.
    """

    def __init__(self, message: str, *, path: Path | None = None, line: int | None = None, fix: str = "") -> None:
        self.path, self.line, self.fix = path, line, fix
        where = "" if path is None else f"{path}:{line}: " if line else f"{path}: "
        super().__init__(f"{where}{message.rstrip('.')}.{' ' + fix if fix else ''}")


class AdmissionRefused(AlgoristError):
    """The machine does not offer the memory that the contract requires. Nothing was trained."""

    exit_code = 3


class GateFailed(AlgoristError):
    """A promised check did not hold (too many non-finite updates in a row, replay difference above its bound, ...)."""

    exit_code = 4


class ResumeMismatch(AlgoristError):
    """The run folder cannot be continued with this contract or these files."""

    exit_code = 5


class Stopped(AlgoristError):
    """Ended before the run did, after the running step was committed: Ctrl-C, SIGTERM, a watch rule. A resume goes on."""

    exit_code = 75


class Paused(Stopped):
    """The disk is full, read-only or failing: nothing half written is left, the newest checkpoint stays, a resume goes on."""
