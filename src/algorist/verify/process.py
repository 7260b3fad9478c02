"""One killable process: a request a line, an answer a line, a deadline from dispatch. See `worker` for its inside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

GRACE_S = 0.4  # the warm process kills a late fork itself; this is the second line, against a stuck warm process
START_S = 60.0  # a cold import of sympy on a loaded two-core machine takes seconds; it is not part of any deadline
_REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@contextlib.contextmanager
def _requests_held_back() -> Iterator[None]:
    """A process started inside never sees a request to stop, nor do its forks.

    Ctrl-C and a scheduler's SIGTERM reach every process of a job. The one that trains finishes its step and saves; a
    verifier that died meanwhile would turn right answers of that step into errors. It ends with the pipe to its caller.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _REQUESTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@final
class Process:
    """A slot for `python -m MODULE memory_mib deadline_s`: a process, or none yet. Used by one thread at a time."""

    def __init__(self, module: str, deadline_s: float, memory_mib: int) -> None:
        self.module, self.deadline_s, self.memory_mib = module, deadline_s, memory_mib
        self.running: subprocess.Popen[bytes] | None = None

    def start(self) -> bool:
        """Make sure that a process is there and ready; False where it could not be started."""
        if self.running is not None and self.running.poll() is None:
            return True
        self.stop()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        limits = [str(self.memory_mib), f"{self.deadline_s:.3f}"]
        with _requests_held_back():
            self.running = subprocess.Popen(
                [sys.executable, "-X", "utf8", "-m", self.module, *limits],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                bufsize=0,
            )
        if not self._read(time.monotonic() + START_S):
            self.stop()
            return False
        return True

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """One answer within the deadline; {"error": why} where the work is late, broken or reports a failure.

        The process replaces its own fork after an error; where it does not answer itself it is killed, and the next
        request starts another.
        """
        if not self.start():
            return {"error": "worker_start"}
        assert self.running is not None, "start() leaves a process"
        assert self.running.stdin is not None, "a process is started with pipes"
        try:
            self.running.stdin.write(json.dumps(job).encode() + b"\n")
            line = self._read(time.monotonic() + self.deadline_s + GRACE_S)
        except BrokenPipeError:
            line = b""
        if not line:
            self.stop()
            return {"error": "timeout" if line is None else "worker_death"}
        reply: dict[str, Any] = json.loads(line)
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
