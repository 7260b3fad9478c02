"""Worker processes that can be killed: one job each, a deadline from dispatch, replacement, recycling.

A pool belongs to one process and may be used from any of its threads; `check_many` blocks, so an event loop calls
`acheck_many`. No signal handler is installed in the caller. Workers are started when the first comparison needs a
proof, by `subprocess`, so that the caller's `__main__` is never imported again.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, final

from algorist.flow import Outcome, Verdict
from algorist.verify import judge
from algorist.verify.item import Item
from algorist.verify.judge import Key, Pending, Result

_START_S = 60.0  # a cold import of sympy on a loaded two-core machine takes seconds; it is not part of any deadline
_RECYCLE_JOBS = 2000
_CACHE_ROWS = 1 << 16


@final
class _Worker:
    """One slot: a process, or none yet. Used by one thread at a time."""

    def __init__(self, deadline_s: float, memory_mib: int) -> None:
        self.deadline_s, self.memory_mib = deadline_s, memory_mib
        self.process: subprocess.Popen[bytes] | None = None
        self.jobs = 0

    def start(self) -> bool:
        """Make sure that a process is there and ready; False where it could not be started."""
        if self.process is not None and self.process.poll() is None and self.jobs < _RECYCLE_JOBS:
            return True
        self.stop()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        limits = [str(self.memory_mib), f"{self.deadline_s + 1.0:.3f}"]
        self.process = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-m", "algorist.verify.worker", *limits],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            bufsize=0,
        )
        self.jobs = 0
        if self._read(time.monotonic() + _START_S) is None:
            self.stop()
            return False
        return True

    def prove(self, key: Key) -> Result:
        """One job, one result, within the deadline; the process is killed where it is late or broken."""
        if not self.start():
            return Result(Outcome.ERROR, "worker_start", "")
        assert self.process is not None, "start() leaves a process"
        assert self.process.stdin is not None, "start() leaves a process with pipes"
        self.jobs += 1
        job = {"id": self.jobs, "gold": key[0], "answer": key[1], "kind": key[2], "tolerance": key[3]}
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            line = self._read(time.monotonic() + self.deadline_s)
        except BrokenPipeError:
            line = b""
        if not line:
            late = line is None
            self.stop()
            return Result(Outcome.ERROR, "timeout" if late else "worker_death", "")
        reply = json.loads(line)
        if "error" in reply:
            self.stop()  # after a memory or library failure the process is not trusted again
            return Result(Outcome.ERROR, f"worker_{reply['error']}", "")
        return Result(Outcome(reply["outcome"]), reply["reason"], reply["method"])

    def _read(self, until: float) -> bytes | None:
        """One line; b'' where the process ended; None where the time is up."""
        assert self.process is not None, "a worker reads from its own process"
        assert self.process.stdout is not None, "a process is started with pipes"
        descriptor, data = self.process.stdout.fileno(), b""
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
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@final
class VerifierPool:
    """Checks many responses: cheap stages in the caller, proofs in `workers` killable processes.

    >>> with VerifierPool() as pool:
    ...     rows = pool.check_many([Item(gold="1/2", response="#### 0.5"), Item(gold="3", response="?")])
    >>> [row.verdict.value for row in rows]
    ['correct', 'unsupported']
    """

    def __init__(self, workers: int = 1, deadline_s: float = 2.0, memory_mib: int = 1024) -> None:
        if workers < 1 or deadline_s <= 0 or memory_mib < 256:
            raise ValueError(
                "a verifier pool needs workers >= 1, deadline_s > 0 and memory_mib >= 256: "
                f"got workers={workers}, deadline_s={deadline_s}, memory_mib={memory_mib}"
            )
        self._free: queue.LifoQueue[_Worker] = queue.LifoQueue()
        self._workers = [_Worker(deadline_s, memory_mib) for _ in range(workers)]
        for worker in reversed(self._workers):
            self._free.put(worker)
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._cache: OrderedDict[Key, Result] = OrderedDict()
        self.num_proofs = 0
        """Jobs sent to workers so far; cached answers are not sent again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers. A later check starts them again."""
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.stop()

    def check(self, item: Item) -> Verdict:
        """One verdict for one item."""
        return self.check_many([item])[0]

    def check_many(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, in input order, whatever happens. Blocks; may be called from several threads."""
        rows = [judge.cheap(item) for item in items]
        waiting = {row.key for row in rows if isinstance(row, Pending)}
        results = self._prove_all(sorted(waiting))
        return [judge.settle(row, results[row.key]) if isinstance(row, Pending) else row for row in rows]

    async def acheck_many(self, items: Sequence[Item]) -> list[Verdict]:
        """`check_many` for an event loop: runs in a thread, does not block the loop."""
        return await asyncio.to_thread(self.check_many, items)

    def _prove_all(self, keys: list[Key]) -> dict[Key, Result]:
        with self._lock:
            results = {key: self._cache[key] for key in keys if key in self._cache}
            missing = [key for key in keys if key not in results]
            if missing and self._threads is None:
                self._threads = ThreadPoolExecutor(len(self._workers), thread_name_prefix="verify")
            threads = self._threads
        if not missing:
            return results
        assert threads is not None, "made above"
        results.update(zip(missing, threads.map(self._prove, missing), strict=True))
        return results

    def _prove(self, key: Key) -> Result:
        worker = self._free.get()
        began = time.perf_counter()
        try:
            result = worker.prove(key)
        finally:
            self._free.put(worker)
        result = result.timed((time.perf_counter() - began) * 1e3)
        with self._lock:
            self.num_proofs += 1
            self._cache[key] = result
            while len(self._cache) > _CACHE_ROWS:
                self._cache.popitem(last=False)
        return result
