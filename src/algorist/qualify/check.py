"""Check the receipts of a run folder or export with nothing but the standard library and rfc8785.

    python check.py RUN [--key PUBLIC_KEY]

This file stands alone: copy it anywhere. It checks what cryptography can: names and canonical bytes of receipts, their
order, their signatures (Ed25519, RFC 8032, verified here in plain Python), the digest of every file, manifests, the ledger's
chain up to the head that the receipt names, and that every gate of the contract is in the receipt. It cannot tell
whether the numbers are right: `algorist audit` recomputes them. Exit code 0: all holds; 4: something does not; 2: no run.
"""

import argparse
import base64
import binascii
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rfc8785

_P = 2**255 - 19
_Q = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P


def sha256(data: bytes) -> str:
    """Lower-case hexadecimal digest."""
    return hashlib.sha256(data).hexdigest()


def check(run: Path, public_key: bytes | None = None) -> list[str]:
    """Everything that does not hold, in words; empty where all does.

    public_key: 32 bytes; every receipt must then carry a valid signature by it.
    """
    receipts = sorted((run / "receipts").glob("[0-9]*.json"))
    if not receipts:
        return [f"{run / 'receipts'}: there is no receipt"]
    problems: list[str] = []
    previous: str | None = None
    statement: dict[str, Any] | None = None
    for number, path in enumerate(receipts, start=1):
        data = path.read_bytes()
        statement, found = _open(path, data, number, public_key)
        problems += found
        if statement is None:
            previous = sha256(data)
            continue
        if statement["predicate"].get("previous") != previous:
            problems.append(
                f"{path}: must follow the receipt {str(previous)[:16]}, a receipt is missing, moved or foreign"
            )
        previous = sha256(data)
    strangers = [p for p in (run / "receipts").iterdir() if p not in receipts]
    problems += [f"{p}: is not a receipt" for p in sorted(strangers)]
    if statement is not None:
        problems += _last(run, receipts[-1], statement)
    return problems


def _open(path: Path, data: bytes, number: int, key: bytes | None) -> tuple[dict[str, Any] | None, list[str]]:
    """(statement, what is wrong with its envelope)."""
    name = path.name.removesuffix(".json")
    if name != f"{number:04d}-{sha256(data)[:16]}":
        return None, [
            f"{path}: its name must be {number:04d}-{sha256(data)[:16]}.json: its bytes changed, or one is missing"
        ]
    try:
        outer = json.loads(data)
        payload = base64.b64decode(outer["payload"], validate=True)
        statement = json.loads(payload)
        signatures = outer["signatures"]
        same = rfc8785.dumps(outer) == data and rfc8785.dumps(statement) == payload
        if outer["payloadType"] != "application/vnd.in-toto+json" or not isinstance(statement["predicate"], dict):
            return None, [f"{path}: is not an in-toto statement"]
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        return None, [f"{path}: is not a receipt ({error})"]
    problems = [] if same else [f"{path}: its bytes are not canonical"]
    if key is not None:
        message = b"DSSEv1 %d %s %d %s" % (
            len(outer["payloadType"]),
            outer["payloadType"].encode(),
            len(payload),
            payload,
        )
        valid = [
            s for s in signatures if s.get("keyid") == sha256(key) and _verify(key, message, _decode(s.get("sig")))
        ]
        if not valid:
            problems.append(f"{path}: has no valid signature by the key {sha256(key)[:16]}")
    return statement, problems


def _last(run: Path, path: Path, statement: dict[str, Any]) -> Iterator[str]:
    """The newest receipt against the files."""
    predicate = statement["predicate"]
    evidence = predicate.get("evidence", {})
    for name, expected in sorted(evidence.items()):
        file = run / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            yield f"{path}: lists a path outside the run: {name}"
        elif file.is_symlink():
            yield f"{file}: must be a file, is a link"
        elif not file.is_file():
            yield f"{file}: is in the receipt and missing"
        elif sha256(file.read_bytes()) != expected:
            yield f"{file}: is not the file the receipt was made from"
    covered = {"receipts", ".lease", "report.html"}
    for file in sorted(run.rglob("*")):
        name = file.relative_to(run).as_posix()
        if file.is_file() and file.relative_to(run).parts[0] not in covered and name not in evidence:
            yield f"{file}: is in no receipt"
    for subject in statement["subject"]:
        file = run / subject["name"] if subject["name"].endswith(".json") else run / subject["name"] / "manifest.json"
        if not file.is_file() or sha256(file.read_bytes()) != subject["digest"]["sha256"]:
            yield f"{file}: is not what the receipt speaks of"
    yield from _manifests(run)
    yield from _ledger(run, predicate)
    yield from _gates(run, path, predicate)


def _manifests(run: Path) -> Iterator[str]:
    for manifest in sorted([*(run / "checkpoints").glob("*/manifest.json"), *run.glob("export/manifest.json")]):
        try:
            files = json.loads(manifest.read_bytes())["files"]
            for name, entry in files.items():
                file = manifest.parent / name
                if not file.is_file() or sha256(file.read_bytes()) != entry["sha256"]:
                    yield f"{file}: does not match {manifest.name}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            yield f"{manifest}: is damaged ({error})"


def _ledger(run: Path, predicate: dict[str, Any]) -> Iterator[str]:
    """The chain, its head, the number of events, and the contracts it names."""
    file = run / "ledger.jsonl"
    head, count = "0" * 64, 0
    try:
        *lines, tail = file.read_bytes().split(b"\n")
    except OSError:
        yield f"{file}: is missing"
        return
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            whole = rfc8785.dumps(event) == line and event["seq"] == count and event["prev"] == head
        except (ValueError, KeyError, TypeError) as error:
            yield f"{file}:{number}: is not a ledger line ({error})"
            return
        if not whole:
            yield f"{file}:{number}: breaks the chain: this line or the one before was changed, moved or removed"
            return
        head, count = sha256(line), count + 1
    if tail:
        yield f"{file}: ends in a torn line"
    if (head, count) != (predicate["ledger"]["head"], predicate["ledger"]["events"]):
        yield f"{file}: must end at event {predicate['ledger']['events']} with head {predicate['ledger']['head'][:16]}"


def _gates(run: Path, path: Path, predicate: dict[str, Any]) -> Iterator[str]:
    """Contract digest; every promised gate is there; `qualified` is said only where all of them passed."""
    file = run / "contract.json"
    try:
        contract = json.loads(file.read_bytes())
        promised = contract["promises"]["gates"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield f"{file}: is not a contract ({error})"
        return
    if sha256(rfc8785.dumps(contract)) != predicate["contract"]:
        yield f"{file}: is not the contract {predicate['contract'][:16]} of the receipt"
    judged = {gate["name"]: gate["verdict"] for gate in predicate["gates"]}
    for name in promised:
        if name not in judged:
            yield f"{path}: the contract promises the gate {name}, the receipt omits it"
    bad = [name for name, verdict in judged.items() if verdict in ("failed", "missing", "deferred")]
    if predicate["status"] == "qualified" and (bad or predicate["reasons"]):
        yield f"{path}: calls the run qualified although {', '.join(bad) or 'it names reasons against it'}"


def _decode(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except (ValueError, binascii.Error):
        return b""


# -- Ed25519 (RFC 8032), verification only: nothing secret is handled here -------------------------------------------

_Point = tuple[int, int, int, int]


def _add(a: _Point, b: _Point) -> _Point:
    A, B = (a[1] - a[0]) * (b[1] - b[0]) % _P, (a[1] + a[0]) * (b[1] + b[0]) % _P
    C, D = 2 * a[3] * b[3] * _D % _P, 2 * a[2] * b[2] % _P
    E, F, G, H = B - A, D - C, D + C, B + A
    return E * F % _P, G * H % _P, F * G % _P, E * H % _P


def _times(s: int, point: _Point) -> _Point:
    result: _Point = (0, 1, 1, 0)
    while s > 0:
        if s & 1:
            result = _add(result, point)
        point, s = _add(point, point), s >> 1
    return result


def _recover(y: int, sign: int) -> int | None:
    if y >= _P:
        return None
    xx = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    if xx == 0:
        return None if sign else 0
    x = pow(xx, (_P + 3) // 8, _P)
    if (x * x - xx) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    if (x * x - xx) % _P:
        return None
    return _P - x if (x & 1) != sign else x


def _point(data: bytes) -> _Point | None:
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    x = _recover(y, sign)
    return None if x is None else (x, y, 1, x * y % _P)


def _verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """True where `signature` is a valid Ed25519 signature of `message`."""
    if len(public) != 32 or len(signature) != 64:
        return False
    base_y = 4 * pow(5, _P - 2, _P) % _P
    base_x = _recover(base_y, 0)
    A, R, s = _point(public), _point(signature[:32]), int.from_bytes(signature[32:], "little")
    if A is None or R is None or base_x is None or s >= _Q:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _Q
    left = _times(s, (base_x, base_y, 1, base_x * base_y % _P))
    right = _add(R, _times(h, A))
    return not ((left[0] * right[2] - right[0] * left[2]) % _P or (left[1] * right[2] - right[1] * left[2]) % _P)


def read_key(path: Path) -> bytes:
    """The 32 bytes of a public key: hexadecimal, or PEM (SubjectPublicKeyInfo)."""
    text = path.read_text().strip()
    if "BEGIN" in text:
        body = "".join(line for line in text.splitlines() if not line.startswith("-"))
        return base64.b64decode(body)[-32:]
    return bytes.fromhex(text)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Check the receipts of an Algorist run folder.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--key", type=Path, help="public key that must have signed every receipt")
    options = parser.parse_args()
    if not options.run.is_dir():
        sys.stderr.write(f"{options.run}: is no folder\n")
        return 2
    problems = check(options.run, read_key(options.key) if options.key else None)
    sys.stdout.write("".join(f"{problem}\n" for problem in problems) or "all receipts hold\n")
    return 4 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
