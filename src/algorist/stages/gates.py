"""Where a loop lets somebody look before it goes on. The loops know these moments, not what is checked at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, final

from algorist.flow import Batch, Problem, Rollout, Update
from algorist.train.rows import Rows

if TYPE_CHECKING:
    from algorist.stages.session import Session
    from algorist.train.trainer import Assigned, Computed, Trainer

Figures = dict[str, float | int | str | bool | None]
"""A row of metrics.jsonl."""


class Gates(Protocol):
    """Each method may write to the ledger and may end the run by raising GateFailed, AdmissionRefused or Stopped."""

    def before_training(self, session: Session) -> None:
        """Before the first step of a run, and again when a process takes a run over."""

    def after_sampling(
        self,
        session: Session,
        sampler: Trainer,
        index: int,
        problems: Sequence[Problem],
        groups: Sequence[Sequence[Rollout]],
    ) -> None:
        """What the engine answered for batch `index`; nothing is graded yet."""

    def before_update(self, session: Session, sampler: Trainer, batch: Batch, rows: Rows) -> Figures:
        """A batch is sampled, graded and stored; the optimizer has not seen it. Returns figures for metrics.jsonl."""
        ...

    def before_step(self, session: Session, trainer: Trainer, assigned: Assigned, computed: Computed) -> None:
        """Loss and gradients of one step are there, in SFT and RL alike; no weight has moved."""

    def after_step(self, session: Session, trainer: Trainer, update: Update) -> None:
        """The step was taken, or skipped; it is on the ledger."""

    def after_batch(self, session: Session, trainer: Trainer, figures: Figures) -> None:
        """A batch is done; `figures` is its row of metrics.jsonl."""

    def before_export(self, session: Session) -> None:
        """All stages are done; the model has not been handed over."""


@final
class Unguarded:
    """No gates: for tests of a loop alone. `algorist run` never uses it."""

    def before_training(self, session: Session) -> None:
        """Nothing."""

    def after_sampling(
        self,
        session: Session,
        sampler: Trainer,
        index: int,
        problems: Sequence[Problem],
        groups: Sequence[Sequence[Rollout]],
    ) -> None:
        """Nothing."""

    def before_update(self, session: Session, sampler: Trainer, batch: Batch, rows: Rows) -> Figures:
        """Nothing."""
        return {}

    def before_step(self, session: Session, trainer: Trainer, assigned: Assigned, computed: Computed) -> None:
        """Nothing."""

    def after_step(self, session: Session, trainer: Trainer, update: Update) -> None:
        """Nothing."""

    def after_batch(self, session: Session, trainer: Trainer, figures: Figures) -> None:
        """Nothing."""

    def before_export(self, session: Session) -> None:
        """Nothing."""
