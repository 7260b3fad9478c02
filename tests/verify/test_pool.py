"""The pool: order, deadlines, replacement, memory, caching, and the same verdict from everywhere."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from algorist.flow import Outcome
from algorist.verify import Item, canary, check
from algorist.verify.pool import VerifierPool
from algorist.verify.process import Process

DEADLINE_S = 1.0
PROOF = Item(gold=r"\arctan\frac12+\arctan\frac13", response=r"\boxed{\arctan\frac17+\arctan\frac34}")
"""Needs the worker."""


@pytest.fixture(scope="module")
def pool():
    with VerifierPool(workers=1, deadline_s=DEADLINE_S) as pool:
        pool.warm()
        yield pool


def test_verdicts_come_in_input_order_one_per_item(pool: VerifierPool) -> None:
    items = [Item(gold=str(k), response=f"\\boxed{{{k if k % 3 else k + 1}}}") for k in range(50)]
    items[7] = PROOF
    items[11] = canary.hard(1)[0]
    verdicts = pool.check_many(items)
    assert len(verdicts) == 50
    expected = [Outcome.CORRECT if k % 3 else Outcome.WRONG for k in range(50)]
    assert [v.verdict for k, v in enumerate(verdicts) if k not in (7, 11)] == [
        e for k, e in enumerate(expected) if k not in (7, 11)
    ]
    assert verdicts[7].verdict is Outcome.CORRECT


def test_what_algebra_cannot_prove_is_settled_in_the_worker(pool: VerifierPool) -> None:
    verdict = pool.check(PROOF)
    assert (verdict.verdict, verdict.method) == (Outcome.CORRECT, "numeric")


def test_a_late_proof_is_an_error_within_the_deadline_and_the_worker_is_replaced(pool: VerifierPool) -> None:
    slow = canary.hard(5)[-1]
    pool.warm()
    began = time.perf_counter()
    verdict = pool.check(slow)
    assert time.perf_counter() - began < DEADLINE_S + 0.5
    assert (verdict.verdict, verdict.reason) == (Outcome.ERROR, "timeout")
    fresh = Item(gold=r"\arctan\frac13-\arctan\frac14", response=r"\boxed{\arctan\frac{1}{13}}")
    assert pool.check(fresh).verdict is Outcome.CORRECT


def test_timeouts_are_cached_so_a_row_is_judged_alike_and_costs_once(pool: VerifierPool) -> None:
    slow = canary.hard(5)[-1]
    pool.check(slow)
    before = pool.num_proofs
    began = time.perf_counter()
    assert pool.check(slow).reason == "timeout"
    assert pool.num_proofs == before
    assert time.perf_counter() - began < 0.2


def test_a_group_of_64_with_few_distinct_answers_costs_few_proofs() -> None:
    forms = [
        r"\arctan\frac17+\arctan\frac34",
        r"\arctan\frac34+\arctan\frac17",
        r"2\arctan\frac13+\arctan\frac17",
        r"\arctan 3-\arctan\frac12",
    ]
    group = [Item(gold=r"\arctan\frac12+\arctan\frac13", response=f"\\boxed{{{forms[k % 4]}}}") for k in range(64)]
    with VerifierPool() as pool:
        verdicts = pool.check_many(group)
        assert {v.verdict for v in verdicts} == {Outcome.CORRECT}
        assert pool.num_proofs <= 4


def test_a_killed_worker_is_a_typed_error_and_the_next_row_works(pool: VerifierPool) -> None:
    worker = Process("algorist.verify.worker", 5.0, 1024)
    assert worker.start()
    assert worker.running is not None
    os.kill(worker.running.pid, signal.SIGKILL)
    worker.running.wait()
    job = {"gold": "x", "answer": "x", "kind": "auto", "tolerance": 0.0}
    assert worker.ask(job)["outcome"] == "correct"  # a dead process is noticed and replaced
    worker.stop()


def test_the_memory_limit_holds_in_the_worker() -> None:
    code = "from algorist.verify.worker import limit_memory; limit_memory(300); bytearray(1 << 30)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr


def test_no_signal_handler_of_the_caller_is_touched(pool: VerifierPool) -> None:
    numbers = (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    before = [signal.getsignal(number) for number in numbers]
    pool.check(PROOF)
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_threads_and_asyncio_and_the_single_check_give_the_same_verdicts(pool: VerifierPool) -> None:
    items = [*canary.RIGHT, *canary.WRONG, *canary.UNPAID, PROOF]
    here = [v.verdict for v in pool.check_many(items)]
    with ThreadPoolExecutor(4) as threads:
        threaded = [v.verdict for v in threads.map(pool.check, items)]

    async def all_at_once() -> list[Outcome]:
        return [v.verdict for v in await pool.acheck_many(items)]

    assert here == threaded == asyncio.run(all_at_once())
    assert here == [check(i.gold, i.response, truncated=i.truncated).verdict for i in items]


def test_checking_off_the_main_thread_works() -> None:
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(check(PROOF.gold, PROOF.response).verdict))
    thread.start()
    thread.join()
    assert found == [Outcome.CORRECT]


def test_hostile_rows_end_in_time_pay_nothing_and_run_no_code(
    pool: VerifierPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for item in canary.hostile():
        began = time.process_time()
        verdict = pool.check(item)
        assert time.process_time() - began < 0.5, item.response[:60]  # of our own process, whatever else runs
        assert verdict.verdict in (Outcome.WRONG, Outcome.UNSUPPORTED), item.response[:60]
    assert list(tmp_path.iterdir()) == []


def test_a_script_without_a_main_guard_can_use_the_pool(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from algorist.verify import check\n"
        "print('once', check(r'\\arctan\\frac12+\\arctan\\frac13', r'\\boxed{\\arctan\\frac17+\\arctan\\frac34}').verdict.value)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "once correct\n"


def test_importing_the_verifier_loads_neither_sympy_nor_torch() -> None:
    code = "import sys, algorist.verify, algorist.verify.pool; print([m for m in ('sympy', 'torch', 'math_verify', 'mpmath') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_wrong_pool_settings_are_refused_with_what_was_got() -> None:
    with pytest.raises(ValueError, match=r"workers >= 1.*workers=0"):
        VerifierPool(workers=0)


@pytest.mark.parametrize("request_to_stop", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_request_to_stop_that_reaches_the_workers_too_changes_no_verdict(request_to_stop) -> None:
    """As Ctrl-C and a scheduler send it: to every process of the job."""
    with VerifierPool(workers=1, deadline_s=DEADLINE_S) as pool:
        pool.warm()
        worker = pool._workers[0].running.pid
        os.kill(worker, request_to_stop)
        for child in Path(f"/proc/{worker}/task/{worker}/children").read_text().split():
            os.kill(int(child), request_to_stop)
        assert pool.check_many([PROOF])[0].verdict is Outcome.CORRECT
        assert pool._workers[0].running.pid == worker
