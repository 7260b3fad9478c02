"""Kills one run again and again with SIGKILL at random moments, resuming each time; prints what came of it as JSON.

Usage: python kill_driver.py RECIPE FOLDER KILLS SEED. A process of its own, so that forking it is cheap and safe: everything
is imported once, torch has one thread, and each child runs or resumes the recipe.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from algorist.launch.prepare import prepare
from algorist.launch.run import resume, run
from algorist.qualify.contract import provenance, source_digest
from algorist.recipe.load import load
from algorist.stages.listener import Silent

torch.set_num_threads(1)


def child(action) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        action()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    recipe, folder, kills, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    resolved = load(recipe)
    prepare(resolved.recipe, base=resolved.base_dir, listener=Silent()).close()  # imports what children would import
    source_digest(), provenance()  # one answer for all children, whatever happens to the source tree meanwhile
    twin, victim = folder / "uninterrupted", folder / "killed"
    started = time.monotonic()
    _, status = os.waitpid(child(lambda: run(resolved, twin, listener=Silent())), 0)
    whole_s = time.monotonic() - started
    assert status == 0, "the uninterrupted run failed"

    draw = random.Random(seed)
    done, places = 0, []
    while done < kills:
        exists = (victim / "ledger.jsonl").is_file() and (victim / "ledger.jsonl").stat().st_size > 0
        if not exists and victim.exists():  # killed before the first event: nothing was promised yet
            victim.rename(folder / f"stillborn-{done}")
        action = (
            (lambda: resume(victim, listener=Silent()))
            if exists
            else (lambda: run(resolved, victim, listener=Silent()))
        )
        pid = child(action)
        time.sleep(draw.uniform(0.0, 0.6 * whole_s))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            done += 1
            places.append(sum(1 for _ in (victim / "ledger.jsonl").open()) if (victim / "ledger.jsonl").exists() else 0)
        else:
            assert status == 0, f"a resume failed with status {status}"
            victim.rename(folder / f"finished-{done}")  # it got through: the next kills need a new victim
    last = folder / "killed"
    if not (last / "ledger.jsonl").exists():
        if last.exists():
            last.rename(folder / "stillborn-last")
        action = lambda: run(resolved, last, listener=Silent())
    else:
        action = lambda: resume(last, listener=Silent())
    _, status = os.waitpid(child(action), 0)
    assert status == 0, f"the last resume failed with status {status}"
    runs = [str(last), *(str(p) for p in sorted(folder.glob("finished-*")))]
    print(
        json.dumps(
            {
                "twin": str(twin),
                "runs": runs,
                "kills": done,
                "finished": len(runs),
                "places": places,
                "whole_s": whole_s,
            }
        )
    )


if __name__ == "__main__":
    main()
