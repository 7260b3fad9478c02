"""Check a run folder, or an export copied away from one, with nothing but the standard library and rfc8785.

    python check.py RUN|EXPORT [--key PUBLIC_KEY] [--receipt FILE]

This file stands alone: copy it anywhere. It checks what cryptography can: that there are only plain files under plain names;
names, canonical bytes, order and signatures of receipts (Ed25519, RFC 8032, verified here in plain Python); the digest of
every file; manifests; the ledger's chain up to the head that the last receipt names; the contracts that its events name; and
that every gate of the contract is in the receipt. It cannot tell whether the numbers are right: `algorist audit` recomputes
them. An export alone is shown to be whole; with --receipt, also of which run it is.

Exit code 0: all holds; 4: something does not, and is named; 2: nothing to check (no run and no export, no such key, or a run
that has not ended: its chain and manifests hold, and no receipt speaks for it yet).
"""

import argparse
import base64
import hashlib
import json
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rfc8785

DAMAGED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What reading values of the wrong shape can raise."""
UNCOVERED = ("receipts", ".lease", "report.html")
"""Not in a receipt's evidence: the receipts themselves, the lock, and the page that is built again from the rest."""
_HALF_WRITTEN = re.compile(r"(^|/)\.[^/]+\.(tmp|old)-\d+(/|$)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that was looked at."""

    problems: list[str]
    """What does not hold, each naming its file; empty where all does."""
    looked_at: str
    skipped: bool = False
    """True where there was nothing to look at: says nothing for or against the run."""


@dataclass(slots=True)
class Tree:
    """The plain files of a folder. Nothing else is ever opened: no link is followed, no pipe waited for."""

    root: Path
    files: dict[str, Path] = field(default_factory=dict)
    """Path inside the folder, with '/', to the file."""
    problems: list[str] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)

    def digest(self, name: str) -> str:
        """sha256 of a file's bytes, read once. Raises OSError."""
        if name not in self.digests:
            with self.files[name].open("rb") as file:
                self.digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return self.digests[name]

    def json(self, name: str) -> Any:
        """What a file of canonical JSON holds. Raises ValueError."""
        if name not in self.files:
            raise ValueError("there is no such file")
        return _canonical(self.files[name].read_bytes())

    def below(self, folder: str) -> list[str]:
        """Names of the files inside a folder; all where it is ''."""
        return sorted(name for name in self.files if name.startswith(f"{folder}/" if folder else ""))


def sha256(data: bytes) -> str:
    """Lower-case hexadecimal digest."""
    return hashlib.sha256(data).hexdigest()


def plain(text: str) -> str:
    """A text that is safe to print, whatever a file was named.

    >>> print(plain("a" + chr(27) + "[2J"))
    a\\x1b[2J
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def check(path: Path, key: bytes | None = None, receipt: Path | None = None) -> list[str]:
    """Everything that does not hold, in words; empty where all does. Arguments as for `look`."""
    return [problem for part in look(walk(path), key, receipt).values() for problem in part.problems]


def look(tree: Tree, key: bytes | None = None, receipt: Path | None = None) -> dict[str, Part]:
    """Part -> what was looked at and what does not hold, of a run or of an export.

    key: 32 bytes; every receipt must carry a valid signature by it. receipt: that must speak of an export alone.
    """
    files = Part(tree.problems, f"{len(tree.files)} plain files")
    try:
        is_run = "ledger.jsonl" in tree.files or "contract.json" in tree.files
        parts = {"files": files, **(_run(tree, key) if is_run else _export(tree, key, receipt))}
    except OSError as error:
        parts = {
            "files": Part([*files.problems, f"{error.filename}: cannot be read ({error.strerror})"], "stopped there")
        }
    return {name: Part([plain(p) for p in part.problems], part.looked_at, part.skipped) for name, part in parts.items()}


def walk(root: Path) -> Tree:
    """What a folder holds. Links, pipes, second names of one file, and names that another could be taken for are problems."""
    tree, folders, looks, linked = Tree(root), [root], dict[str, Path](), list[Path]()
    while folders:
        with os.scandir(folders.pop()) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path, seen = Path(entry.path), entry.stat(follow_symlinks=False)
            name = path.relative_to(root).as_posix()
            if stat.S_ISDIR(seen.st_mode):
                folders.append(path)
            elif stat.S_ISREG(seen.st_mode):
                tree.files[name] = path
                linked += [path] if seen.st_nlink > 1 else []
            else:
                kind = "link" if stat.S_ISLNK(seen.st_mode) else "pipe, a socket or a device"
                tree.problems.append(f"{path}: must be a file, is a {kind}")
            if not entry.name.isprintable() or unicodedata.normalize("NFKC", entry.name) != entry.name:
                tree.problems.append(f"{path}: its name must be printable text in normal form, got {entry.name!a}")
            twin = looks.setdefault(unicodedata.normalize("NFKC", name).casefold(), path)
            if twin != path:
                tree.problems.append(f"{path}: its name can be taken for that of {twin}")
    if linked:
        words = "has a second name (hard link) through which its bytes can change; look at a copy (cp -r)"
        tree.problems.append(f"{', '.join(map(str, linked[:3]))}{' ...' * (len(linked) > 3)}: {words}")
    return tree


# -- a run ----------------------------------------------------------------------------------------------------------


def _run(tree: Tree, key: bytes | None) -> dict[str, Part]:
    events, heads, chain = _chain(tree)
    contract, contracts = _contracts(tree, [] if chain else [event["contract"] for event in events])
    promised = contract.get("provenance", {}).get("signing_key")
    statements, receipts = _receipts(tree, bytes.fromhex(promised) if key is None and promised else key)
    last = events[-1] if events else {}
    ended = last.get("kind") in ("closed", "refused") or (last.get("kind") == "gate" and last.get("passed") is False)
    parts = {
        "chain": Part(chain, f"{len(events)} events, head {heads[-1][:16]}"),
        "contract": Part(contracts, "contract.json and what it amends, against the ledger"),
        "manifests": Part(_all(tree.root, _manifests(tree, [] if chain else events)), "checkpoints and export"),
    }
    if not statements:
        if not receipts and (ended or key is not None):
            words = (
                "the run has ended and there is no receipt"
                if ended
                else "there is no receipt, the key has signed nothing"
            )
            receipts.append(f"{tree.root / 'receipts'}: {words}")
        return {"receipts": Part(receipts, "none: the run has not ended", skipped=not receipts), **parts}
    path, said = statements[-1]
    signed = (
        "signatures not asked for" if not (key or promised) else f"signed by the {'given' if key else 'contract’s'} key"
    )
    parts["receipts"] = Part(receipts, f"{len(statements)}, the last one says {said['predicate']['status']}, {signed}")
    place = "unknown" if chain else _place(said["predicate"], heads, events)
    if place == "earlier" and not ended:
        return parts | {"evidence": Part([], "of an earlier state; the run went on", skipped=True)}
    if place == "earlier":
        receipts.append(f"{path}: speaks of an earlier state; the run has ended since, and no receipt says how")
    elif place == "elsewhere" and said["predicate"]["contract"] not in {event["contract"] for event in events}:
        receipts.append(
            f"{path}: is the receipt of another run, under the contract {said['predicate']['contract'][:16]}"
        )
    else:
        if place == "elsewhere":
            head = f"event {said['predicate']['ledger']['events']} with head {said['predicate']['ledger']['head'][:16]}"
            chain.append(
                f"{tree.root / 'ledger.jsonl'}: must have {head}, as {path.name} says; lines were cut or written anew"
            )
        looked_at = f"{len(said['predicate']['evidence'])} files and {len(said['predicate']['gates'])} gates"
        parts["evidence"] = Part(
            _all(path, _evidence(tree, path, said), _gates(path, said["predicate"], {} if contracts else contract)),
            looked_at,
        )
    return parts


def _chain(tree: Tree) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """(events before the first bad line, heads after 0, 1, 2, ... events, what is wrong)."""
    path, events, heads, moment = tree.root / "ledger.jsonl", list[dict[str, Any]](), ["0" * 64], ""
    if "ledger.jsonl" not in tree.files:
        return events, heads, [f"{path}: must be the run's ledger, there is no such file"]
    *lines, tail = tree.files["ledger.jsonl"].read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            event = _canonical(line)
            if not all(type(event[name]) is int for name in ("seq", "policy_version")) or not _TIME.fullmatch(
                event["wall"]["time"]
            ):
                raise ValueError("seq, policy_version or wall.time is not what a ledger holds")
            event["kind"], event["contract"], event["prev"] = (
                str(event[name]) for name in ("kind", "contract", "prev")
            )
        except DAMAGED as error:
            return events, heads, [f"{path}:{number}: is not a ledger line ({_short(error)})"]
        problem = ""
        if event["seq"] != len(events) or event["prev"] != heads[-1]:
            problem = "breaks the chain: this line or the one before was changed, moved, doubled or removed"
        elif event["wall"]["time"] < moment:
            problem = f"was written at {event['wall']['time']}, before the line above it ({moment})"
        if problem:
            return events, heads, [f"{path}:{number}: {problem}"]
        moment = event["wall"]["time"]
        events.append(event)
        heads.append(sha256(line))
    if tail or not events:
        words = f"ends in {len(tail)} bytes that are no line: cut by hand, or by a kill (then a resume goes on)"
        return events, heads, [f"{path}: {words if tail else 'holds no event'}"]
    return events, heads, []


def _contracts(tree: Tree, named: list[str]) -> tuple[dict[str, Any], list[str]]:
    """(contract in force or {}, what is wrong): every contract that events name is there, under its own digest."""
    contract, problems, kept = dict[str, Any](), list[str](), set[str]()
    for name in ["contract.json", *tree.below("contracts")]:
        path = tree.root / name
        try:
            document = tree.json(name)
            _ = (
                document["recipe"]["name"],
                [*document["promises"]["gates"]],
                document["provenance"].get("signing_key"),
            )
        except DAMAGED as error:
            problems.append(f"{path}: is not a contract ({_short(error)})")
            continue
        kept.add(tree.digest(name))
        if name == "contract.json":
            contract = document
            if named and tree.digest(name) != named[-1]:
                problems.append(f"{path}: is not the contract {named[-1][:16]} that the ledger was written under")
        elif name != f"contracts/{tree.digest(name)}.json":
            problems.append(f"{path}: must be named after its digest {tree.digest(name)[:16]}")
    missing = [digest for digest in dict.fromkeys(named) if digest not in kept and digest != named[-1]]
    problems += [
        f"{tree.root / 'contracts' / digest}.json: events name this contract, it is missing" for digest in missing
    ]
    return contract, problems


def _receipts(tree: Tree, key: bytes | None) -> tuple[list[tuple[Path, dict[str, Any]]], list[str]]:
    """(readable statements, oldest first; what is wrong with names, order, bytes and signatures)."""
    numbered = [name for name in tree.below("receipts") if re.fullmatch(r"receipts/\d{4,}-[0-9a-f]{16}\.json", name)]
    problems = [f"{tree.files[name]}: is not a receipt" for name in tree.below("receipts") if name not in numbered]
    statements: list[tuple[Path, dict[str, Any]]] = []
    previous = None
    for number, name in enumerate(sorted(numbered, key=lambda name: (len(name), name)), start=1):
        path, digest = tree.files[name], tree.digest(name)
        if path.name != f"{number:04d}-{digest[:16]}.json":
            words = "its bytes changed, or one is missing"
            problems.append(f"{path}: its name must be {number:04d}-{digest[:16]}.json: {words}")
        else:
            statement, found = _open(path, key)
            if statement is not None:
                statements.append((path, statement))
                if statement["predicate"].get("previous") != previous:
                    found.append(f"{path}: must follow the receipt {previous}, one is missing, moved or foreign")
            problems += found
        previous = digest
    return statements, problems


def _open(path: Path, key: bytes | None) -> tuple[dict[str, Any] | None, list[str]]:
    """(statement, what is wrong with its envelope)."""
    try:
        outer = _canonical(path.read_bytes())
        payload, kind = base64.b64decode(outer["payload"], validate=True), outer["payloadType"]
        statement = _canonical(payload)
        predicate = statement["predicate"]
        _ = (
            predicate["ledger"]["events"] + 1,
            predicate["ledger"]["head"] + predicate["contract"] + predicate["status"],
        )
        _ = ({**predicate["evidence"]}, [gate["name"] + gate["verdict"] for gate in predicate["gates"]])
        if kind != "application/vnd.in-toto+json":
            raise ValueError("not an in-toto statement")
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        signatures = [
            base64.b64decode(s["sig"], validate=True) for s in outer["signatures"] if key and s["keyid"] == sha256(key)
        ]
    except DAMAGED as error:
        return None, [f"{path}: is not a receipt ({_short(error)})"]
    if key is not None and not any(_verify(key, message, signature) for signature in signatures):
        return statement, [f"{path}: has no valid signature by the key {sha256(key)[:16]}"]
    return statement, []


def _place(predicate: dict[str, Any], heads: list[str], events: list[dict[str, Any]]) -> str:
    """Which state of the ledger a receipt speaks of: current, earlier (the run was resumed after it), elsewhere."""
    count = predicate["ledger"]["events"]
    if 0 < count < len(heads) and heads[count] == predicate["ledger"]["head"]:
        return (
            "current" if count == len(events) else "earlier" if events[count - 1]["kind"] != "closed" else "elsewhere"
        )
    gone_back = predicate["status"] == "failed" and any(event["kind"] == "resumed" for event in events)
    return "earlier" if gone_back else "elsewhere"  # a resume cuts what failed after the last checkpoint


def _evidence(tree: Tree, path: Path, statement: dict[str, Any]) -> Iterator[str]:
    """The newest receipt against the files."""
    evidence = statement["predicate"]["evidence"]
    for name, expected in sorted(evidence.items()):
        if name in tree.files:
            if tree.digest(name) != expected:
                yield f"{tree.root / name}: is not the file the receipt was made from"
        elif ".." in Path(name).parts or Path(name).is_absolute():
            yield f"{path}: lists a path outside the run: {name}"
        else:
            yield f"{tree.root / name}: is in the receipt and missing"
    for name in sorted(tree.files):
        if name.split("/")[0] not in UNCOVERED and name not in evidence:
            yield f"{tree.files[name]}: is not in receipts/{path.name}"
    for subject in statement["subject"]:
        name = subject["name"] if subject["name"].endswith(".json") else f"{subject['name']}/manifest.json"
        if name not in tree.files or tree.digest(name) != subject["digest"]["sha256"]:
            yield f"{tree.root / name}: is not what the receipt speaks of"


def _gates(path: Path, predicate: dict[str, Any], contract: dict[str, Any]) -> Iterator[str]:
    """Every promised gate is there, once; `qualified` is said only where all of them passed."""
    judged = {gate["name"]: gate["verdict"] for gate in predicate["gates"]}
    for name in contract["promises"]["gates"] if contract else ():
        if name not in judged:
            yield f"{path}: the contract promises the gate {name}, the receipt omits it"
    if len(judged) != len(predicate["gates"]):
        yield f"{path}: judges a gate twice"
    bad = [name for name, verdict in judged.items() if verdict not in ("passed", "reported", "absent")]
    if predicate["status"] == "qualified" and (bad or predicate["reasons"]):
        yield f"{path}: calls the run qualified although {', '.join(bad) or 'it names reasons against it'}"


def _manifests(tree: Tree, events: list[dict[str, Any]]) -> Iterator[str]:
    """Checkpoints and export hold exactly the files that their manifests list, which are those that were committed."""
    committed = {str(event.get("name")): event for event in events if event["kind"] == "checkpoint"}
    places = {"/".join(name.split("/")[:2]) for name in tree.below("checkpoints") if name.count("/") > 1}
    for folder in sorted(places | ({"export"} if tree.below("export") else set())):
        name, event = f"{folder}/manifest.json", committed.get(folder.split("/")[-1])
        if event is not None and name in tree.files and tree.digest(name) != event.get("manifest"):
            yield f"{tree.root / name}: is not the one that event {event['seq']} committed"
        elif not _HALF_WRITTEN.search(folder):
            yield from _manifest(tree, folder)


def _manifest(tree: Tree, folder: str) -> Iterator[str]:
    name = f"{folder}/manifest.json".lstrip("/")
    try:
        listed = {f"{folder}/{file}".lstrip("/"): entry["sha256"] for file, entry in tree.json(name)["files"].items()}
    except DAMAGED as error:
        yield f"{tree.root / name}: is damaged ({_short(error)})"
        return
    for file, digest in listed.items():
        if file not in tree.files or tree.digest(file) != digest:
            yield f"{tree.root / file}: {'does not match' if file in tree.files else 'is missing, and listed in'} {tree.root / name}"
    yield from (
        f"{tree.files[f]}: is not listed in manifest.json" for f in tree.below(folder) if f not in {*listed, name}
    )


# -- an export alone ------------------------------------------------------------------------------------------------


def _export(tree: Tree, key: bytes | None, receipt: Path | None) -> dict[str, Part]:
    parts = {"manifests": Part(_all(tree.root, _manifest(tree, "")), "every file of the export")}
    try:
        contract = tree.json("algorist.json")["contract"][:64]
    except DAMAGED as error:
        problem = f"{tree.root / 'algorist.json'}: must say of which run it is ({_short(error)})"
        return parts | {"receipt": Part([problem], "algorist.json")}
    if receipt is None:
        missing = (
            [f"{tree.root}: a key was given, and no receipt that it could have signed (--receipt FILE)"] if key else []
        )
        words = f"of contract {contract[:16]}, it says; that it is, and what that run came to, its receipt shows (--receipt FILE)"
        return parts | {"receipt": Part(missing, words, skipped=not missing)}
    statement, problems = _open(receipt, key)
    words = "the receipt"
    if statement is not None:
        words = f"calls its run {statement['predicate']['status']}, {'signed by the given key' if key else 'signature not asked for'}"
        speaks = [subject.get("digest") for subject in statement["subject"] if subject["name"] == "export"]
        own = tree.digest("manifest.json") if "manifest.json" in tree.files else ""
        if speaks != [{"sha256": own}]:
            problems.append(f"{receipt}: does not speak of the export {tree.root}")
        elif statement["predicate"]["contract"] != contract:
            problems.append(f"{tree.root / 'algorist.json'}: names another contract than the receipt")
    return parts | {"receipt": Part(problems, words)}


# -- values ---------------------------------------------------------------------------------------------------------


def _canonical(data: bytes) -> Any:
    """What canonical JSON says. Raises ValueError for doubled keys, nan, -0, other spellings of a number, spaces."""
    value = json.loads(data)
    if rfc8785.dumps(value) != data:
        raise ValueError("its bytes are not canonical")
    return value


def _all(path: Path, *found: Iterator[str]) -> list[str]:
    """All problems; values of the wrong shape are one of them."""
    problems: list[str] = []
    for some in found:
        try:
            problems.extend(some)
        except DAMAGED as error:
            problems.append(f"{path}: holds values of the wrong shape ({_short(error)})")
    return problems


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]


# -- Ed25519 (RFC 8032), verification only: nothing secret is handled here -------------------------------------------

_P, _Q = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_BASE = 4 * pow(5, -1, _P) % _P
_Point = tuple[int, int]


def _add(a: _Point, b: _Point) -> _Point:
    k = _D * a[0] * a[1] * b[0] * b[1] % _P
    x, y = (a[0] * b[1] + a[1] * b[0]) * pow(1 + k, -1, _P), (a[1] * b[1] + a[0] * b[0]) * pow(1 - k, -1, _P)
    return x % _P, y % _P


def _times(s: int, point: _Point) -> _Point:
    result = (0, 1)
    while s:
        result, point, s = _add(result, point) if s & 1 else result, _add(point, point), s >> 1
    return result


def _point(data: bytes) -> _Point:
    """The point that 32 bytes encode. Raises ValueError where they encode none."""
    sign, y = data[31] >> 7, int.from_bytes(data, "little") % 2**255
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    x = x if x * x % _P == square else x * pow(2, (_P - 1) // 4, _P) % _P
    if y >= _P or x * x % _P != square or (x == 0 and sign):
        raise ValueError("encodes no point")
    return (x if x & 1 == sign else _P - x), y


def _verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """True where `signature` is a valid Ed25519 signature of `message`."""
    s = int.from_bytes(signature[32:], "little")
    if len(public) != 32 or len(signature) != 64 or s >= _Q:
        return False
    h = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % _Q
    try:
        return _times(s, _point(_BASE.to_bytes(32, "little"))) == _add(
            _point(signature[:32]), _times(h, _point(public))
        )
    except ValueError:
        return False


def read_key(path: Path) -> bytes:
    """The 32 bytes of a public key: hexadecimal, or PEM (SubjectPublicKeyInfo). Raises OSError, ValueError."""
    text = path.read_text().strip()
    body = "".join(line for line in text.splitlines() if not line.startswith("-"))
    key = base64.b64decode(body)[-32:] if "BEGIN PUBLIC" in text else bytes.fromhex(text)
    if len(key) != 32:
        raise ValueError(f"must have 32 bytes, got {len(key)}")
    return key


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Check the receipts of an Algorist run folder, or an export.")
    parser.add_argument("run", type=Path, help="a run folder, or an export copied away from one")
    parser.add_argument("--key", type=Path, help="public key that must have signed every receipt")
    parser.add_argument("--receipt", type=Path, help="for an export alone: the receipt that speaks of it")
    options = parser.parse_args()
    try:
        key, tree = read_key(options.key) if options.key else None, walk(options.run)
    except (OSError, ValueError) as error:
        sys.stderr.write(plain(f"{options.key or options.run}: cannot be used: {error}") + "\n")
        return 2
    if not {"ledger.jsonl", "contract.json", "manifest.json"} & set(tree.files):
        sys.stderr.write(plain(f"{options.run}: is neither a run nor an export") + "\n")
        return 2
    parts = look(tree, key, options.receipt)
    problems = [problem for part in parts.values() for problem in part.problems]
    silent = next(
        (part.looked_at for name, part in parts.items() if name in ("receipts", "receipt") and part.skipped), ""
    )
    sys.stdout.write(
        "".join(f"{problem}\n" for problem in problems) or (f"{silent}\n" if silent else "all receipts hold\n")
    )
    return 4 if problems else 2 if silent and "receipts" in parts else 0


if __name__ == "__main__":
    raise SystemExit(main())
