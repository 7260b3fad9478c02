"""Receipts: what a run came to, as an in-toto Statement v1 in a DSSE envelope, for people who were not there.

    envelope = canonical({payloadType, payload: base64(statement), signatures: [{keyid, sig}]})
    sig = Ed25519("DSSEv1 " len(type) " " type " " len(statement) " " statement)

A receipt is named after its own digest, names the receipt before it, and lists the digest of every file of the run, so
that a changed, missing or exchanged file shows. Unsigned receipts prove wholeness only: whoever can write the folder can
write a new set. Sign them, or publish the digest of the last one.
"""

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from algorist.digest import JSON, canonical, digest, file_digest, sha256
from algorist.errors import InputError
from algorist.qualify.check import UNCOVERED
from algorist.qualify.gate import GATES
from algorist.record import commit
from algorist.record.ledger import Event, EventKind, counts
from algorist.record.run_folder import RunFolder

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "urn:algorist:receipt:1"
PAYLOAD: Final = "application/vnd.in-toto+json"
KEY_VARIABLE: Final = "ALGORIST_SIGNING_KEY"
"""Environment variable with the path of an Ed25519 private key in PEM; unset: receipts are not signed."""


_UPDATES: Final = (EventKind.UPDATE_APPLIED, EventKind.UPDATE_SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A written receipt.

    >>> Receipt(path=Path("receipts/0001-ab.json"), digest="ab", status="qualified", reasons=(), signed=False).status
    'qualified'
    """

    path: Path
    digest: str
    """sha256 of the file."""
    status: str
    """qualified, unqualified, unadmitted, refused or failed."""
    reasons: tuple[str, ...]
    """Why it is not qualified."""
    signed: bool


def issue(folder: RunFolder, events: Sequence[Event]) -> Receipt:
    """Write the receipt of a run as it stands: closed, refused, unadmitted or failed.

    Equal folders give equal receipts; where the last receipt already says all this, it is returned and nothing is
    written. Raises InputError where the signing key cannot be used.
    """
    before = existing(folder)
    status, reasons = judge(events)
    statement: dict[str, Any] = {
        "_type": STATEMENT,
        "subject": subjects(folder),
        "predicateType": PREDICATE,
        "predicate": {
            **claims(events),
            "evidence": evidence(folder),
            "previous": file_digest(before[-1]) if before else None,
        },
    }
    if before and _says_the_same(before[-1], statement):
        return Receipt(path=before[-1], digest=file_digest(before[-1]), status=status, reasons=reasons, signed=False)
    data = envelope(canonical(statement), os.environ.get(KEY_VARIABLE))
    name = sha256(data)
    path = folder.receipts / f"{len(before) + 1:04d}-{name[:16]}.json"
    commit.atomic_write(path, data)
    signed = bool(os.environ.get(KEY_VARIABLE))
    return Receipt(path=path, digest=name, status=status, reasons=reasons, signed=signed)


def claims(events: Sequence[Event]) -> dict[str, JSON]:
    """What a receipt says that follows from the ledger alone: an audit derives it again."""
    status, reasons = judge(events)
    return {
        "status": status,
        "reasons": list(reasons),
        "contract": events[-1].contract,
        "contracts": contracts(events),
        "gates": gates(events),
        "counts": totals(events),
        "ledger": {"events": len(events), "head": sha256(events[-1].to_line())},
    }


def existing(folder: RunFolder) -> list[Path]:
    """The receipts of a run, oldest first."""
    return sorted(folder.receipts.glob("[0-9]*.json")) if folder.receipts.is_dir() else []


def envelope(payload: bytes, key_path: str | None) -> bytes:
    """The DSSE envelope of a statement, signed where a key is given."""
    signatures: list[JSON] = []
    if key_path:
        key = load_key(Path(key_path))
        public = public_bytes(key)
        signature = key.sign(pae(PAYLOAD, payload))
        signatures.append({"keyid": sha256(public), "sig": base64.b64encode(signature).decode()})
    return canonical({"payloadType": PAYLOAD, "payload": base64.b64encode(payload).decode(), "signatures": signatures})


def pae(kind: str, payload: bytes) -> bytes:
    """What DSSE signs: the pre-authentication encoding.

    >>> pae("a/b", b"xy")
    b'DSSEv1 3 a/b 2 xy'
    """
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)


def load_key(path: Path) -> Any:
    """An Ed25519 private key. Raises InputError where the file or the package is missing."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise InputError(
            f"{KEY_VARIABLE} is set, and signing needs the package cryptography, which is not installed. "
            f"Install it (pip install -e '.[sign]' in the checkout), or unset {KEY_VARIABLE}: receipts are then written unsigned."
        ) from error
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: must be an Ed25519 private key in PEM without a password: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(
            f"{path}: must be an Ed25519 private key, got {type(key).__name__}. See: algorist receipt new-key"
        )
    return key


def signing_key() -> str | None:
    """The public half, in hexadecimal, of the key that this process signs with; None where it signs nothing.

    Raises InputError where the key cannot be used.
    """
    path = os.environ.get(KEY_VARIABLE)
    return public_bytes(load_key(Path(path))).hex() if path else None


def public_bytes(key: Any) -> bytes:
    """The 32 bytes of the public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    raw: bytes = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return raw


def new_key(path: Path) -> bytes:
    """Write a new private key to `path` (PEM, readable by its owner only) and its public half, in hexadecimal, to path.pub.

    Returns the 32 public bytes. Raises InputError where a file is there already, or `cryptography` is not installed.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError as error:
        raise InputError(
            "a key needs the package cryptography, which is not installed. Install it: pip install -e '.[sign]' in the checkout"
        ) from error
    public_path = path.with_name(f"{path.name}.pub")
    for file in (path, public_path):
        if file.exists():
            raise InputError(f"{file}: is there already, and a key is never overwritten. Choose another name.")
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = public_bytes(key)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file_object:
            file_object.write(pem)
        public_path.write_text(f"{public.hex()}\n")
    except OSError as error:
        for file in (path, public_path):
            file.unlink(missing_ok=True)
        raise InputError(f"{path}: the key could not be written ({error.strerror}). Choose another place.") from error
    return public


def judge(events: Sequence[Event]) -> tuple[str, tuple[str, ...]]:
    """(status, reasons) from the ledger alone."""
    last = events[-1]
    if last.kind is EventKind.REFUSED:
        status = "unadmitted" if last.payload.get("exit_code") == 3 else "refused"
        return status, (str(last.payload.get("message")),)
    if last.kind is not EventKind.CLOSED:
        failed = [e for e in events if e.kind is EventKind.GATE and e.payload.get("passed") is False]
        message = (
            failed[-1].payload.get("message") or failed[-1].payload.get("cause")
            if failed
            else "the run is not finished"
        )
        return "failed", (str(message),)
    reasons = []
    for gate in gates(events):
        assert isinstance(gate, Mapping), "gates() gives mappings"
        if gate["verdict"] == "missing":
            reasons.append(f"the gate {gate['name']} was never judged")
        elif gate["verdict"] == "failed":
            reasons.append(f"the gate {gate['name']} failed: {gate['cause']}")
        elif gate["name"] == "outcome" and gate["verdict"] == "reported":
            reasons.append(f"the training made the policy worse: {gate['cause']}")
    reasons += _mostly_skipped(events)
    admission = [e for e in events if e.kind is EventKind.ADMISSION]
    figures = admission[-1].payload.get("figures") if admission else None
    if isinstance(figures, Mapping) and figures.get("declared"):
        reasons.append("memory was admitted by declared figures, not by a measurement")
    if sum(e.kind is EventKind.UPDATE_APPLIED for e in events) == 0:
        reasons.append("no update was applied")
    return ("qualified" if not reasons else "unqualified"), tuple(reasons)


def _mostly_skipped(events: Sequence[Event]) -> Iterator[str]:
    """A run of RL that skipped more updates than it applied has hardly learned from what it sampled."""
    rl = [e for e in events if e.payload.get("stage") == "rl" and e.kind in _UPDATES]
    skipped = sum(e.kind is EventKind.UPDATE_SKIPPED for e in rl)
    if rl and len(rl) > skipped > len(rl) / 2:
        yield f"{skipped} of {len(rl)} RL updates were skipped, so hardly anything was learned from what was sampled"


def gates(events: Sequence[Event]) -> list[JSON]:
    """The closed list, each gate with its last verdict; one that was never judged is `missing`.

    An amendment clears the verdicts. Those on sampled batches stay until a batch is sampled under the new contract, unless
    the amendment changed their settings: where no batch follows, they still speak of every batch there is.
    """
    last: dict[str, Event] = {}
    older: set[str] = set()
    for event in events:
        if event.kind is EventKind.CONTRACT:
            older = {name for name in _ON_BATCHES if name in last and not _touches(event, _ON_BATCHES[name])}
            last = {name: last[name] for name in older}
        elif event.kind is EventKind.ROLLOUT_BATCH and older:
            last = {name: verdict for name, verdict in last.items() if name not in older}
            older = set()
        elif event.kind is EventKind.REPLAY_CHECK:
            last["replay"] = (
                event if last.get("replay") is None or last["replay"].payload.get("passed") else last["replay"]
            )
        elif event.kind in (EventKind.GATE, EventKind.ADMISSION):
            last[str(event.payload.get("name"))] = event
    return [_gate(name, last.get(name)) for name in GATES]


_ON_BATCHES: Final[Mapping[str, tuple[str, ...]]] = {
    "signal": ("recipe.qualify.signal",),
    "rollouts": (),
    "replay": ("recipe.rl.replay", "recipe.qualify.float32"),
}
"""Gates judged on batches -> the settings that their verdict depends on besides the batches."""


def _touches(amendment: Event, settings: Sequence[str]) -> bool:
    """True where an amendment changed one of the settings, or does not say what it changed."""
    changes = amendment.payload.get("changes")
    if not isinstance(changes, Sequence) or isinstance(changes, str):
        return True
    changed = [str(change).split(":", 1)[0] for change in changes]
    return any(c == s or c.startswith(f"{s}.") or s.startswith(f"{c}.") for c in changed for s in settings)


def _gate(name: str, event: Event | None) -> dict[str, JSON]:
    if event is None:
        return {
            "name": name,
            "verdict": "missing",
            "value": None,
            "threshold": None,
            "unit": "",
            "cause": "",
            "seq": None,
        }
    p = event.payload
    if event.kind is EventKind.REPLAY_CHECK:
        value, threshold = p.get(f"{p.get('statistic')}_nats"), p.get("bound_nats")
        verdict, unit = ("passed" if p.get("passed") else "failed"), f"nats, {p.get('statistic')} per token"
        return {
            "name": name, "verdict": verdict, "value": value, "threshold": threshold, "unit": unit,
            "cause": p.get("cause", ""), "seq": event.seq,
        }  # fmt: skip
    head: dict[str, JSON] = {"name": name, "seq": event.seq}
    return head | {k: p.get(k) for k in ("verdict", "value", "threshold", "unit", "cause")}


def contracts(events: Iterable[Event]) -> list[JSON]:
    """Digests of the contracts that were in force, first one first."""
    return list(dict.fromkeys(e.contract for e in events))


def totals(events: Sequence[Event]) -> dict[str, JSON]:
    """Counts of a ledger, apart, with what was promised."""
    found = counts(events)
    closed = events[-1].payload if events[-1].kind is EventKind.CLOSED else {}
    return {
        "rollout_batches": found.rollout_batches,
        "updates_applied": found.updates_applied,
        "updates_skipped": found.updates_skipped,
        "evaluations_completed": found.evaluations_completed,
        "batches_promised": closed.get("batches_promised"),
        "replay_checks": sum(e.kind is EventKind.REPLAY_CHECK for e in events),
        "refusals": sum(e.kind is EventKind.REFUSED for e in events),
    }


def subjects(folder: RunFolder) -> list[JSON]:
    """What the receipt is about: each committed checkpoint and the export; a run without any: its contract."""
    found: list[JSON] = []
    for path in [*commit.numbered(folder.checkpoints), folder.export]:
        if (path / commit.MANIFEST).is_file():
            name = path.relative_to(folder.root).as_posix()
            found.append({"name": name, "digest": {"sha256": file_digest(path / commit.MANIFEST)}})
    return found or [{"name": "contract.json", "digest": {"sha256": file_digest(folder.contract)}}]


def evidence(folder: RunFolder) -> dict[str, JSON]:
    """Path -> sha256 of every file of the run but the uncovered ones."""
    return {
        p.relative_to(folder.root).as_posix(): file_digest(p)
        for p in sorted(folder.root.rglob("*"))
        if p.is_file() and p.relative_to(folder.root).parts[0] not in UNCOVERED
    }


def _says_the_same(path: Path, statement: Mapping[str, Any]) -> bool:
    try:
        stored = json.loads(base64.b64decode(json.loads(path.read_bytes())["payload"]))
        own = {k: v for k, v in stored["predicate"].items() if k != "previous"}
    except (ValueError, KeyError, TypeError):
        return False
    new = {k: v for k, v in statement["predicate"].items() if k != "previous"}
    return digest(own) == digest(new) and stored["subject"] == statement["subject"]
