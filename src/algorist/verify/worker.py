"""The process that proves: reads one job a line, answers one line, and may be killed at any moment.

Started as `python -m algorist.verify.worker MEMORY_MIB DEADLINE_S` by `algorist.verify.process`. It imports sympy once
and stays idle; a fork of it does the jobs and is killed where one is late, so that a replacement costs milliseconds,
not another import. Jobs and answers are JSON; nothing a response says reaches `eval`, `sympify` or a shell. Two limits
hold even if every parent is gone: the address space (RLIMIT_AS) and a real-time alarm with the default action, which
ends a fork inside C code too.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from algorist.verify import judge

RECYCLE_JOBS = 2000
BUDGET = 0.8  # share of the deadline that the work gets; the rest is for killing it and forking anew on a busy machine

Handle = Callable[[dict[str, Any]], dict[str, Any]]


def limit_memory(mib: int) -> None:
    """Cap the address space of this process; does nothing where the platform has no such limit."""
    try:
        import resource
    except ImportError:  # not a POSIX system: the deadline still holds
        return
    size = mib << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def guarded(handle: Handle, job: dict[str, Any], deadline_s: float) -> dict[str, Any]:
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


class Child:
    """A fork of the warm process, which does the jobs one after the other and can be replaced in milliseconds."""

    def __init__(self, handle: Handle, deadline_s: float) -> None:
        self.handle, self.deadline_s = handle, deadline_s
        self.pid = 0
        self.jobs = 0
        self.to_child = self.from_child = -1

    def ask(self, line: bytes) -> dict[str, Any]:
        """The answer to one job, or {"error": why}; after an error the child is gone."""
        if not self.pid or self.jobs >= RECYCLE_JOBS:
            self.end()
            self.fork()
        self.jobs += 1
        until = time.monotonic() + self.deadline_s
        try:
            os.write(self.to_child, line)
        except BrokenPipeError:
            self.end()
            return {"error": "worker_death"}
        data = b""
        while not data.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.from_child], [], [], left)[0]:
                self.end()
                return {"error": "timeout"}
            chunk = os.read(self.from_child, 1 << 16)
            if not chunk:
                self.end()
                return {"error": "worker_death"}
            data += chunk
        reply: dict[str, Any] = json.loads(data)
        if "error" in reply:  # after a memory or library failure the child is not trusted again
            self.end()
            return {"error": f"worker_{reply['error']}"}
        return reply

    def fork(self) -> None:
        """Start a child that reads jobs until its pipe closes."""
        jobs, self.to_child = os.pipe()
        self.from_child, answers = os.pipe()
        self.jobs = 0
        self.pid = os.fork()
        if self.pid:
            os.close(jobs)
            os.close(answers)
            return
        os.close(self.to_child)
        os.close(self.from_child)
        code = 1
        try:
            with os.fdopen(jobs, "rb") as lines, os.fdopen(answers, "wb", buffering=0) as out:
                for line in lines:
                    out.write(
                        json.dumps(guarded(self.handle, json.loads(line), self.deadline_s + 0.5)).encode() + b"\n"
                    )
            code = 0
        finally:
            os._exit(code)

    def end(self) -> None:
        """Kill and reap the child, if any."""
        if not self.pid:
            return
        os.close(self.to_child)
        os.close(self.from_child)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0


def serve(handle: Handle, warm: Callable[[], None], argv: list[str]) -> int:
    """Answer jobs from standard input until it closes; each runs in a fork of this warm process."""
    memory_mib, deadline_s = int(argv[0]), float(argv[1])
    limit_memory(memory_mib)
    out = sys.stdout.buffer
    sys.stdout = sys.stderr
    warm()
    gc.freeze()  # what is loaded stays shared with the forks
    out.write(json.dumps({"ready": True}).encode() + b"\n")
    out.flush()
    child = Child(handle, BUDGET * deadline_s)
    try:
        for line in sys.stdin.buffer:
            out.write(json.dumps(child.ask(line)).encode() + b"\n")
            out.flush()
    finally:
        child.end()
    return 0


def prove(job: dict[str, Any]) -> dict[str, Any]:
    """The job of this worker: {gold, answer, kind, tolerance} to {outcome, reason, method}."""
    result = judge.prove(job["gold"], job["answer"], job["kind"], job["tolerance"])
    return {"outcome": result.outcome, "reason": result.reason, "method": result.method}


if __name__ == "__main__":
    sys.exit(serve(prove, judge.warm, sys.argv[1:]))
