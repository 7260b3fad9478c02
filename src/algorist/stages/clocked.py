"""Gates whose time is known: what a run tells of the price of being checked."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, final

from algorist.flow import Batch, Problem, Rollout, Update
from algorist.stages.gates import Figures, Gates
from algorist.train.rows import Rows

if TYPE_CHECKING:
    from algorist.stages.session import Session
    from algorist.train.trainer import Assigned, Computed, Trainer


@final
class Clocked:
    """The same gates. `seconds` is the time spent in them so far, that of writing ledger lines left out."""

    def __init__(self, gates: Gates) -> None:
        self.gates = gates
        self.seconds = 0.0

    def before_training(self, session: "Session") -> None:
        """See `Gates`."""
        with self._clock(session):
            self.gates.before_training(session)

    def after_sampling(
        self,
        session: "Session",
        sampler: "Trainer",
        index: int,
        problems: Sequence[Problem],
        groups: Sequence[Sequence[Rollout]],
    ) -> None:
        """See `Gates`."""
        with self._clock(session):
            self.gates.after_sampling(session, sampler, index, problems, groups)

    def before_update(self, session: "Session", sampler: "Trainer", batch: Batch, rows: Rows) -> Figures:
        """See `Gates`."""
        with self._clock(session):
            return self.gates.before_update(session, sampler, batch, rows)

    def before_step(self, session: "Session", trainer: "Trainer", assigned: "Assigned", computed: "Computed") -> None:
        """See `Gates`."""
        with self._clock(session):
            self.gates.before_step(session, trainer, assigned, computed)

    def after_step(self, session: "Session", trainer: "Trainer", update: Update) -> None:
        """See `Gates`."""
        with self._clock(session):
            self.gates.after_step(session, trainer, update)

    def after_batch(self, session: "Session", trainer: "Trainer", figures: Figures) -> None:
        """See `Gates`."""
        with self._clock(session):
            self.gates.after_batch(session, trainer, figures)

    def before_export(self, session: "Session") -> None:
        """See `Gates`."""
        with self._clock(session):
            self.gates.before_export(session)

    @contextlib.contextmanager
    def _clock(self, session: "Session") -> Iterator[None]:
        started, written = time.monotonic(), session.ledger.append_s
        try:
            yield
        finally:
            self.seconds += time.monotonic() - started - (session.ledger.append_s - written)
