"""Many responses: cheap stages in the caller, proofs in worker processes that can be killed.

A pool belongs to one process and may be used from any of its threads; `check_many` blocks, so an event loop calls
`acheck_many`. No signal handler is installed in the caller. Workers are started when the first comparison needs a
proof, by `subprocess`, so that the caller's `__main__` is never imported again.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self, final

from algorist.flow import Outcome, Verdict
from algorist.verify import judge
from algorist.verify.item import Item
from algorist.verify.judge import Key, Pending, Result
from algorist.verify.process import Process

_CACHE_ROWS = 1 << 16
_LOG = logging.getLogger(__name__)


def first_look(item: Item) -> Verdict | Pending:
    """`judge.cheap`, total: a fault of ours is a typed error that leaves its group, never a crash of a run.

    >>> first_look(Item(gold="1", response="#### 1")).reason
    'equal'
    """
    try:
        return judge.cheap(item)
    except Exception:  # noqa: BLE001  the boundary of the room: one record per input, whatever happens; the cause is logged
        _LOG.exception("the verifier failed on gold %r, response ending %r", item.gold[:200], item.response[-200:])
        return Verdict(verdict=Outcome.ERROR, reason="internal")


@final
class VerifierPool:
    """Checks many responses; each worker has one job at a time, a deadline from dispatch, and is replaced when killed.

    Results of proofs, time-outs included, are cached by (gold, answer, kind): equal answers of a group cost one proof,
    and a row is judged alike whenever it comes.

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
        self._free: queue.LifoQueue[Process] = queue.LifoQueue()
        self._workers = [Process("algorist.verify.worker", deadline_s, memory_mib) for _ in range(workers)]
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

    def warm(self) -> bool:
        """Start all workers now; False where one could not be started."""
        with ThreadPoolExecutor(len(self._workers)) as threads:
            return all(threads.map(Process.start, self._workers))

    def check(self, item: Item) -> Verdict:
        """One verdict for one item."""
        return self.check_many([item])[0]

    def check_many(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, in input order, whatever happens. Blocks; may be called from several threads."""
        rows = [first_look(item) for item in items]
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
        try:
            worker.start()  # before the clock runs: the deadline is counted from dispatch
            began = time.perf_counter()
            gold, answer, kind, tolerance = key
            reply = worker.ask({"gold": gold, "answer": answer, "kind": kind, "tolerance": tolerance})
        finally:
            self._free.put(worker)
        ms = (time.perf_counter() - began) * 1e3
        if "error" in reply:
            result = Result(Outcome.ERROR, str(reply["error"]), "", ms)
        else:
            result = Result(Outcome(reply["outcome"]), str(reply["reason"]), str(reply["method"]), ms)
        with self._lock:
            self.num_proofs += 1
            if result.reason != "worker_start":
                self._cache[key] = result
            while len(self._cache) > _CACHE_ROWS:
                self._cache.popitem(last=False)
        return result
