"""Where a loop lets somebody look before it goes on. The loops know these moments, not what is checked at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from algorist.flow import Batch
from algorist.train.rows import Rows

if TYPE_CHECKING:
    from algorist.stages.session import Session
    from algorist.train.trainer import Trainer

Figures = dict[str, float | int | str | bool | None]
"""A row of metrics.jsonl."""


class Gates(Protocol):
    """Each method may write to the ledger and may end the run by raising GateFailed, AdmissionRefused or Stopped."""

    def before_training(self, session: Session) -> None:
        """Before the first step of a run, and again when a process takes a run over."""

    def before_update(self, session: Session, trainer: Trainer, batch: Batch, rows: Rows) -> Figures:
        """A batch is sampled, graded and stored; the optimizer has not seen it. Returns figures for metrics.jsonl."""
        ...

    def after_batch(self, session: Session, trainer: Trainer, figures: Figures) -> None:
        """A batch is done; `figures` is its row of metrics.jsonl."""

    def before_export(self, session: Session) -> None:
        """All stages are done; the model has not been handed over."""


@final
class Unguarded:
    """No gates: for tests of a loop alone. `algorist run` never uses it."""

    def before_training(self, session: Session) -> None:
        """Nothing."""

    def before_update(self, session: Session, trainer: Trainer, batch: Batch, rows: Rows) -> Figures:
        """Nothing."""
        return {}

    def after_batch(self, session: Session, trainer: Trainer, figures: Figures) -> None:
        """Nothing."""

    def before_export(self, session: Session) -> None:
        """Nothing."""
