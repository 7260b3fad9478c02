"""What the newest receipt says of a run. Read as it stands: `algorist audit` checks it, this page only shows it."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from algorist.record.run_folder import RunFolder

NOT_JUDGED: Final = "not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on a run.

    >>> Judgement(status="unqualified", reasons=("the gate replay failed",), receipt="0001-ab.json").line
    'unqualified: the gate replay failed (0001-ab.json)'
    """

    status: str
    """qualified, unqualified, unadmitted, refused, failed, or not judged."""
    reasons: tuple[str, ...]
    """Why it is not qualified."""
    receipt: str
    """Name of the receipt that was read; '' where there is none."""
    gates: tuple[Mapping[str, Any], ...] = ()
    """What the receipt says of each gate: name, verdict, value, threshold, unit, cause."""

    @property
    def line(self) -> str:
        """One line for a terminal."""
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.status}{reasons}{f' ({self.receipt})' if self.receipt else ''}"


def newest(folder: RunFolder, head: str) -> Judgement:
    """The verdict of the newest receipt; head: that of the ledger, which a receipt must be about to count."""
    paths = sorted(folder.receipts.glob("[0-9]*.json")) if folder.receipts.is_dir() else []
    if not paths:
        return Judgement(status=NOT_JUDGED, reasons=("the run has no receipt",), receipt="")
    name = paths[-1].name
    try:
        predicate = json.loads(base64.b64decode(json.loads(paths[-1].read_bytes())["payload"]))["predicate"]
        status, reasons = str(predicate["status"]), tuple(str(reason) for reason in predicate["reasons"])
        sealed = str(predicate["ledger"]["head"])
        gates = tuple(dict(gate) for gate in predicate.get("gates", ()))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"the newest receipt could not be read ({type(error).__name__})"
        return Judgement(status=NOT_JUDGED, reasons=(reason,), receipt=name)
    if sealed != head:
        reason = f"the newest receipt ({status}) is of another state of the ledger"
        return Judgement(status=NOT_JUDGED, reasons=(reason,), receipt=name)
    return Judgement(status=status, reasons=reasons, receipt=name, gates=gates)
