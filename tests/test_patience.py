"""A limit on other people's code that leaves no trace behind."""

import signal
import threading
import time

import pytest

from algorist.patience import Overdue, patience


def test_a_block_in_time_leaves_alarm_and_handler_as_they_were() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with patience(5.0, "too slow"):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0


def test_no_handler_of_the_block_mistakes_the_end_for_its_own_error() -> None:
    swallowed = []

    def forgiving() -> None:
        try:
            time.sleep(5)
        except Exception as error:
            swallowed.append(error)

    with pytest.raises(Overdue, match="too slow"), patience(0.02, "too slow"):
        forgiving()
    assert not swallowed


def test_on_another_thread_nothing_is_limited_and_nothing_breaks() -> None:
    seen = []

    def work() -> None:
        with patience(0.01, "too slow"):
            time.sleep(0.05)
            seen.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["done"]
