"""Check a run offline, from its files alone: nothing here trusts what the run said about itself.

Three layers, each standing on the one before: every byte is the one that was sealed (`qualify.check`, as the standalone
checker does it); what the files say fits together (`qualify.history`, `qualify.contents`); and, where the recipe can be
loaded again, what was computed comes out again (`qualify.recompute`, `qualify.rescore`).
"""

import json
from pathlib import Path

from algorist.qualify import contents, history
from algorist.qualify.check import look, walk
from algorist.qualify.evidence import Audit as Audit
from algorist.qualify.evidence import Check, Evidence, run_check
from algorist.record import ledger
from algorist.record.run_folder import RunFolder


def audit_files(path: Path, *, public_key: bytes | None = None) -> tuple[Evidence | None, list[Check]]:
    """Every check that needs nothing but the files. Evidence is None where bytes are not the sealed ones."""
    tree = walk(path)
    checks = [Check.of(name, part) for name, part in look(tree, public_key).items()]
    if not all(check.ok for check in checks):
        words = "skipped: what the files say is looked at once they are the ones that were sealed"
        return None, [*checks, Check(name="what the files say", faults=(), looked_at=words, skipped=True)]
    folder = RunFolder(root=path)
    events, _ = ledger.scan(folder.ledger)
    kept = [folder.contract, *sorted((path / "contracts").glob("*.json"))]
    documents = {tree.digest(p.relative_to(path).as_posix()): json.loads(p.read_bytes()) for p in kept}
    named = dict.fromkeys(event.contract for event in events)
    evidence = Evidence(folder=folder, tree=tree, contracts={d: documents[d] for d in named}, events=tuple(events))
    for name, (judge, blame) in {
        "contract terms": (history.terms, folder.contract),
        "order of events": (history.order, folder.ledger),
        "counts": (history.counts, folder.ledger),
        "thresholds": (history.thresholds, folder.ledger),
        "receipt claims": (history.receipts, folder.receipts),
        "other files": (contents.layout, folder.root),
        "rollout files": (contents.batches, folder.rollouts),
        "metrics": (contents.metric_rows, folder.metrics),
        "evaluations": (contents.evaluations, folder.evaluations),
        "checkpoints": (contents.checkpoints, folder.checkpoints),
    }.items():
        checks.append(run_check(name, lambda judge=judge: judge(evidence), blame))  # type: ignore[misc]
    if all(check.ok for check in checks):  # the page is made of the others
        checks.append(run_check("page and lock", lambda: contents.page(evidence), folder.report))
    return evidence, checks
