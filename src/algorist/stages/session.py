"""One run in progress: where it writes, how far it is, and how it is saved so that a kill loses nothing."""

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, final

import torch
from safetensors.torch import load_file, save_file

from algorist.digest import JSON, canonical, file_digest
from algorist.errors import ResumeMismatch, Stopped
from algorist.policy import weights
from algorist.policy.model import CausalPolicy
from algorist.record import commit
from algorist.record.ledger import OF_PROCESSES, Event, EventKind, Ledger
from algorist.record.metrics import Metrics
from algorist.record.run_folder import RunFolder
from algorist.record.storage import DiskFull, free_bytes, mib
from algorist.stages.clocked import Clocked
from algorist.stages.config import RecordConfig
from algorist.stages.gates import Unguarded
from algorist.stages.listener import Listener
from algorist.train.optimizer import load_moments, moments
from algorist.train.trainer import Trainer

Phase = Literal["start", "sft", "rl", "done"]
_BETWEEN_SAVES: Final = 8 << 20
"""Bytes kept free besides two checkpoints: rollouts, ledger, metrics and the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a run is. Everything else a resume needs is a pure function of the contract and this.

    Example:
        >>> Position(phase="rl", sft_steps=20, batches=3, applied=2).number
        23
    """

    phase: Phase = "start"
    """The loop that was running."""
    sft_steps: int = 0
    """Finished SFT steps."""
    batches: int = 0
    """Finished rollout batches, skipped ones included."""
    applied: int = 0
    """Applied updates of the running phase: the policy version."""
    nonfinite: int = 0
    """Non-finite skips in a row, up to now."""
    flat: int = 0
    """Flat batches in a row, up to now."""
    sampled_tokens: int = 0
    """Response tokens sampled so far in RL."""
    ledger: int = 0
    """Ledger events, set when saved."""
    metrics: int = 0
    """Metrics rows, set when saved."""

    @property
    def number(self) -> int:
        """N of checkpoints/step-N: finished SFT steps and batches."""
        return self.sft_steps + self.batches


@final
@dataclass(slots=True, kw_only=True)
class Session:
    """The run folder with everything open in it. One per process."""

    folder: RunFolder
    ledger: Ledger
    metrics: Metrics
    record: RecordConfig
    policy: CausalPolicy
    contract: str
    """Digest of the contract in force."""
    seed: int
    listener: Listener
    gates: Clocked = field(default_factory=lambda: Clocked(Unguarded()))
    """Who looks before a loop goes on, and how long it took."""
    stop_requested: Callable[[], bool] = lambda: False
    """True once a person asked to stop."""
    pause: str = ""
    """Why a gate wants the run to end after this step, in a sentence."""
    position: Position = field(default_factory=Position)
    reference: CausalPolicy | None = None
    restored: Path | None = None
    """Checkpoint this process started from; its optimizer state is still to be loaded."""
    _saved: int = -1
    _told_s: tuple[float, float] = (0.0, 0.0)

    def save(self, trainer: Trainer | None, *, announce: bool = True) -> None:
        """Commit a checkpoint of the present position; `announce` puts it on the ledger.

        Holds weights, moments, reference weights and the position; random numbers need no state, since every one is
        derived from the seed and a position. Raises DiskFull where it does not fit, and, once it is saved, where the disk
        had no room for two of them.
        """
        number = self.position.number
        if number == self._saved:
            return
        self.ledger.require_in_place()  # before anything is written to a folder that is not there any more
        # the checkpoint event itself belongs to what is kept, so that a resume does not announce it twice
        kept = self.ledger.position + int(announce)
        self.position = replace(self.position, ledger=kept, metrics=self.metrics.num_rows)
        started = time.monotonic()
        size = self._bytes(trainer)
        shortage = self._shortage(size)
        manifest = commit.commit_directory(
            self.folder.checkpoint(number), lambda folder: self._write(folder, trainer), need_bytes=size
        )
        if announce:
            self.ledger.append(
                EventKind.CHECKPOINT,
                policy_version=self.position.applied,
                payload={"name": f"step-{number}", "manifest": manifest.digest, "phase": self.position.phase},
                wall={
                    "write_s": round(time.monotonic() - started, 3),
                    "metrics": file_digest(self.metrics.path),
                    **self.spent(),
                },
            )
        self._retain(self.folder.checkpoint(number))
        self._saved = number
        if shortage is not None:
            raise shortage

    def require_room(self, *, reference: bool) -> None:
        """Raise DiskFull unless two checkpoints fit; `reference`: they will hold a reference policy too."""
        shortage = self._shortage(self._bytes(None, reference=reference))
        if shortage is not None:
            raise shortage

    def due(self) -> bool:
        """True where the recipe wants a checkpoint at the present position."""
        return self.position.number % self.record.checkpoint_every == 0

    def restore(self, *, reference: bool = False) -> None:
        """Go back to the newest checkpoint that verifies; without one, to the beginning. Skipped ones are told.

        reference: as in `require_room`, which is asked before anything is cut.
        """
        self.require_room(reference=reference)
        latest = commit.latest_valid(self.folder.checkpoints)
        for skipped in latest.skipped:
            self.listener.say(f"checkpoint {skipped.path.name} cannot be used and is skipped: {skipped.reason}")
        position = Position()
        if latest.path is not None and latest.manifest is not None:
            self._is_own(latest.path, latest.manifest.digest)
            position = _read_position(latest.path / "state.json")
            self._load_weights(latest.path / "weights.safetensors")
        target = max(position.ledger, self._sealed())
        if target == self.ledger.position + 1 and latest.path is not None and latest.manifest is not None:
            # a kill between committing a checkpoint and announcing it: the event is written now, as it would have been
            self.ledger.append(
                EventKind.CHECKPOINT,
                policy_version=position.applied,
                payload={"name": latest.path.name, "manifest": latest.manifest.digest, "phase": position.phase},
                wall={"write_s": 0.0},
            )
        if target > self.ledger.position or position.metrics > self.metrics.num_rows:
            raise ResumeMismatch(
                f"{self.folder.root}: the checkpoint {latest.path.name if latest.path else ''} lies {target} events and "
                f"{position.metrics} metrics rows into the run; there are only {self.ledger.position} and "
                f"{self.metrics.num_rows}. Files are missing; start a new run."
            )
        if latest.path is not None:
            self._retain(latest.path)  # a kill may have come before it
        cut = self.ledger.roll_back(target)
        replayed = sum(e.kind not in OF_PROCESSES for e in cut)
        self.metrics.roll_back(position.metrics)
        self._remove_later(position)
        self.position, self.restored = position, latest.path
        self._saved = position.number if latest.path is not None else -1
        self.ledger.append(
            EventKind.RESUMED,
            policy_version=position.applied,
            payload={
                "checkpoint": None if latest.path is None else latest.path.name,
                "manifest": None if latest.manifest is None else latest.manifest.digest,
                "events_replayed": replayed,
                "failed_before": [str(e.payload.get("message") or e.payload.get("cause")) for e in cut if _failed(e)],
                "paused_before": [str(e.payload["message"]) for e in cut if e.kind is EventKind.PAUSED],
                "skipped": [f"{s.path.name}: {s.reason}" for s in latest.skipped],
            },
            # what a stop took is kept where nothing is done again
            wall={k: cut[-1].wall[k] for k in ("gates_s", "ledger_s") if cut and not replayed and k in cut[-1].wall},
        )
        where = "the beginning" if latest.path is None else latest.path.name
        self.listener.say(f"resuming from {where}; {replayed} later events will be replayed")

    def load_optimizer(self, trainer: Trainer) -> None:
        """Moments and applied updates of the checkpoint this process started from, once."""
        if self.restored is None:
            return
        trainer.applied = self.position.applied
        file = self.restored / "moments.safetensors"
        if file.exists():
            load_moments(self.policy, trainer.optimizer, load_file(file))
        elif trainer.applied:
            raise ResumeMismatch(
                f"{self.restored}: must hold the optimizer's moments (moments.safetensors) of its {trainer.applied} updates: they are "
                "missing, and going on without them is another run. Put the file back, or start a new run from the weights."
            )
        self.restored = None

    def check_stop(self, trainer: Trainer | None) -> None:
        """Where a person or a gate asked to stop: commit, and end with exit code 75."""
        if self.pause or self.stop_requested():
            self.save(trainer, announce=self.due())
            why = self.pause or f"stopped on request after step {self.position.number}."
            raise Stopped(
                f"{why} Everything is saved; go on with: algorist resume {shlex.quote(str(self.folder.root))}"
            )

    def spent(self) -> dict[str, JSON]:
        """Seconds spent at the gates and writing ledger lines since this was last asked; for the wall part of an event."""
        gates_s, ledger_s = self._told_s
        self._told_s = self.gates.seconds, self.ledger.append_s
        return {
            "gates_s": round(self.gates.seconds - gates_s, 4),
            "ledger_s": round(self.ledger.append_s - ledger_s, 4),
        }

    # -- inside -----------------------------------------------------------------------------------------------------

    def _is_own(self, path: Path, manifest: str) -> None:
        """A checkpoint that the ledger knows must be the one it knows; one that a kill left unannounced is not there."""
        said = [
            e.payload["manifest"]
            for e in self.ledger.events
            if e.kind is EventKind.CHECKPOINT and e.payload["name"] == path.name
        ]
        if said and said[-1] != manifest:
            raise ResumeMismatch(
                f"{path}: must be the checkpoint that this run wrote: its manifest is not the one on the ledger, so its files are those of "
                "another run, or were changed. Put the original back, or remove the folder to go on from the one before."
            )

    def _load_weights(self, path: Path) -> None:
        weights.load_state(self.policy, path)
        stored = load_file(path)
        odd = [name for name, own in weights.state(self.policy).items() if not torch.equal(own, stored[name])]
        if odd:
            raise ResumeMismatch(
                f"{path}: the policy must hold the checkpoint's weights after a resume: {odd[0]} differs."
            )

    def _retain(self, newest: Path) -> None:
        """LATEST names the newest checkpoint; one that only a stop asked for goes, then the oldest beyond `keep`."""
        commit.point_latest(self.folder.checkpoints, newest.name)
        announced = {e.payload["name"] for e in self.ledger.events if e.kind is EventKind.CHECKPOINT}
        commit.remove(p for p in commit.numbered(self.folder.checkpoints) if p != newest and p.name not in announced)
        commit.prune(self.folder.checkpoints, keep=self.record.keep)

    def _sealed(self) -> int:
        """Events that no resume cuts: everything up to the last contract or refusal."""
        counted = [e for e in self.ledger.events if e.kind not in OF_PROCESSES]
        kinds = [i for i, e in enumerate(counted, start=1) if e.kind in (EventKind.CONTRACT, EventKind.REFUSED)]
        return kinds[-1] if kinds else 0

    def _write(self, folder: Path, trainer: Trainer | None) -> None:
        weights.save_state(self.policy, folder / "weights.safetensors")
        if trainer is not None:
            named = moments(self.policy, trainer.optimizer)
            if named:
                save_file(named, folder / "moments.safetensors")
        if self.reference is not None:
            weights.save_state(self.reference, folder / "reference.safetensors")
        (folder / "state.json").write_bytes(canonical({**asdict(self.position), "contract": self.contract}))

    def _bytes(self, trainer: Trainer | None, *, reference: bool = False) -> int:
        """Size of the next checkpoint, measured on the tensors that go into it; moments not made yet are as large as weights."""
        named = moments(self.policy, trainer.optimizer) if trainer is not None else {}
        made = sum(t.numel() * t.element_size() for t in named.values())
        expected = 2 * sum(p.numel() * p.element_size() for p in self.policy.parameters())
        copies = 1 + int(reference or self.reference is not None)
        return copies * weights.state_bytes(self.policy) + (made or expected) + (1 << 16)

    def _shortage(self, size_bytes: int) -> DiskFull | None:
        """Room for the next checkpoint and the one after it, or what to say."""
        need, free = 2 * size_bytes + _BETWEEN_SAVES, free_bytes(self.folder.root)
        if free >= need:
            return None
        return DiskFull(
            f"{self.folder.root}: a run keeps {mib(need)} free, twice its next checkpoint of {mib(size_bytes)} and "
            f"{mib(_BETWEEN_SAVES)} for the rest; {mib(free)} are free",
            remedy="Free some space there",
        )

    def _remove_later(self, position: Position) -> None:
        """Files of the steps that will be replayed."""
        if self.folder.rollouts.is_dir():
            for file in self.folder.rollouts.glob("batch-*.parquet"):
                if int(file.stem.removeprefix("batch-")) >= position.batches:
                    file.unlink()


def _read_position(path: Path) -> Position:
    stored = json.loads(path.read_bytes())
    stored.pop("contract")
    return Position(**stored)


def _failed(event: Event) -> bool:
    """A gate that ended the process before: its event is replayed with the others, so that the resume must tell of it."""
    return event.kind is EventKind.GATE and event.payload.get("passed") is False
