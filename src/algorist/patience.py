"""A limit on how long other people's code may take: what hangs ends the run in words instead of waiting for ever."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Overdue(BaseException):
    """Time is up. Not an Exception, so that no handler inside mistakes it for one of its own errors."""


@contextlib.contextmanager
def patience(seconds: float, words: str) -> Iterator[None]:
    """Raise `Overdue(words)` inside the block once it has taken so long. Only on the main thread, which alone can be stopped.

    Uses SIGALRM. A block that sets an alarm of its own takes this one's place; one that never comes back from C code is not
    stopped.

    >>> with patience(5.0, "too slow"):
    ...     1 + 1
    2
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise Overdue(words)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
