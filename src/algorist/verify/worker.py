"""The process that proves: reads one job a line, answers one line, and may be killed at any moment.

Started as `python -m algorist.verify.worker MEMORY_MIB DEADLINE_S` by `algorist.verify.process`. Jobs and answers are
JSON; nothing a response says reaches `eval`, `sympify` or a shell. Two limits hold even if the parent is gone: the
address space (RLIMIT_AS) and a real-time alarm with the default action, which ends the process inside C code too.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

from algorist.verify import judge


def limit_memory(mib: int) -> None:
    """Cap the address space of this process; does nothing where the platform has no such limit."""
    try:
        import resource
    except ImportError:  # not a POSIX system: the deadline still holds
        return
    size = mib << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def guarded(
    handle: Callable[[dict[str, Any]], dict[str, Any]], job: dict[str, Any], deadline_s: float
) -> dict[str, Any]:
    """One job under the alarm. Failures of the machinery are answers too: {"error": name}."""
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        return handle(job)
    except MemoryError:
        return {"error": "memory"}
    except RecursionError:
        return {"error": "recursion"}
    except Exception as error:  # noqa: BLE001  the process boundary: whatever a library raises becomes a typed answer
        return {"error": type(error).__name__}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def serve(handle: Callable[[dict[str, Any]], dict[str, Any]], warm: Callable[[], None], argv: list[str]) -> int:
    """Serve jobs from standard input until it closes. Whatever else writes to standard output goes to standard
    error."""
    memory_mib, deadline_s = int(argv[0]), float(argv[1])
    limit_memory(memory_mib)
    out = sys.stdout
    sys.stdout = sys.stderr
    warm()
    out.write(json.dumps({"ready": True}) + "\n")
    out.flush()
    for line in sys.stdin:
        out.write(json.dumps(guarded(handle, json.loads(line), deadline_s)) + "\n")
        out.flush()
    return 0


def prove(job: dict[str, Any]) -> dict[str, Any]:
    """The job of this worker: {gold, answer, kind, tolerance} to {outcome, reason, method}."""
    result = judge.prove(job["gold"], job["answer"], job["kind"], job["tolerance"])
    return {"outcome": result.outcome, "reason": result.reason, "method": result.method}


if __name__ == "__main__":
    sys.exit(serve(prove, judge.warm, sys.argv[1:]))
