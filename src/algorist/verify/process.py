"""One killable process: a request a line, an answer a line, a deadline from dispatch."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, final

START_S = 60.0  # a cold import of sympy on a loaded two-core machine takes seconds; it is not part of any deadline
RECYCLE_JOBS = 2000


@final
class Process:
    """A slot for `python -m MODULE memory_mib deadline_s`: a process, or none yet. Used by one thread at a time."""

    def __init__(self, module: str, deadline_s: float, memory_mib: int) -> None:
        self.module, self.deadline_s, self.memory_mib = module, deadline_s, memory_mib
        self.running: subprocess.Popen[bytes] | None = None
        self.jobs = 0

    def start(self) -> bool:
        """Make sure that a process is there and ready; False where it could not be started."""
        if self.running is not None and self.running.poll() is None and self.jobs < RECYCLE_JOBS:
            return True
        self.stop()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        limits = [str(self.memory_mib), f"{self.deadline_s + 1.0:.3f}"]
        self.running = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-m", self.module, *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,
        )
        self.jobs = 0
        if not self._read(time.monotonic() + START_S):
            self.stop()
            return False
        return True

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """One answer within the deadline; {"error": why} where the process is late, broken or reports a failure.

        After an error the process is killed; the next request starts another.
        """
        if not self.start():
            return {"error": "worker_start"}
        assert self.running is not None, "start() leaves a process"
        assert self.running.stdin is not None, "a process is started with pipes"
        self.jobs += 1
        try:
            self.running.stdin.write(json.dumps(job).encode() + b"\n")
            line = self._read(time.monotonic() + self.deadline_s)
        except BrokenPipeError:
            line = b""
        if not line:
            self.stop()
            return {"error": "timeout" if line is None else "worker_death"}
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            self.stop()  # after a memory or library failure the process is not trusted again
            return {"error": f"worker_{reply['error']}"}
        return reply

    def _read(self, until: float) -> bytes | None:
        """One line; b'' where the process ended; None where the time is up."""
        assert self.running is not None, "a process is read while it is there"
        assert self.running.stdout is not None, "a process is started with pipes"
        descriptor, data = self.running.stdout.fileno(), b""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while not data.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                return b""
            data += chunk
        return data

    def stop(self) -> None:
        """Kill and reap the process, if any."""
        process, self.running = self.running, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
