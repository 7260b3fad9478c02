"""A second opinion by math-verify, in its own killable process: the oracle of audits and benchmarks, never of a reward.

math-verify guards itself with alarms of the main thread, so it runs as `python -m algorist.verify.second`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, final

from algorist.verify.process import Process
from algorist.verify.worker import serve


def opinion(job: dict[str, Any]) -> dict[str, Any]:
    """{gold, response} to {correct}: gold boxed, math-verify's default parse."""
    import math_verify

    gold = math_verify.parse("\\boxed{" + job["gold"] + "}")
    return {"correct": bool(math_verify.verify(gold, math_verify.parse(job["response"])))}


def warm() -> None:
    """Import math-verify and use it once."""
    opinion({"gold": "1", "response": "\\boxed{1}"})


@final
class SecondOpinion:
    """math-verify with a deadline; None where it failed.

    >>> with SecondOpinion() as second:
    ...     list(second.ask([("1/2", r"\\boxed{0.5}")]))
    [True]
    """

    def __init__(self, deadline_s: float = 20.0) -> None:
        self._process = Process("algorist.verify.second", deadline_s, 4096)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()

    def ask(self, pairs: Iterable[tuple[str, str]]) -> Iterable[bool | None]:
        """One opinion per (gold, response), in order."""
        for gold, response in pairs:
            with self._lock:
                reply = self._process.ask({"gold": gold, "response": response})
            yield reply.get("correct")


if __name__ == "__main__":
    sys.exit(serve(opinion, warm, sys.argv[1:]))
