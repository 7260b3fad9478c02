"""What all verbs share: errors to exit codes, --json, stopping on request, quiet libraries."""

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

from algorist.digest import JSON
from algorist.errors import AlgoristError, InputError
from algorist.record.storage import DiskFull, write_failure


def guarded(arguments: argparse.Namespace) -> int:
    """Run the verb's function. An AlgoristError becomes its message and its exit code; anything else is a fault of ours."""
    quiet_libraries()
    wants_json = bool(getattr(arguments, "json", False))
    try:
        code = int((getattr(arguments, "func", None) or arguments.run)(arguments))
        sys.stdout.flush()  # here, where a full disk or a closed pipe can still be told
        return code
    except AlgoristError as error:
        return refuse(error, wants_json=wants_json)
    except KeyboardInterrupt:
        say("algorist: interrupted; what was committed is safe, the running step is lost")
        return 130
    except BrokenPipeError:
        _to_nowhere(sys.stdout)
        return 0
    except OSError as error:  # verbs that write no run: a report, a recipe, standard output itself
        if not isinstance(write_failure(error, Path(str(error.filename or "."))), DiskFull):
            raise
        where = error.filename or "standard output, or the file it was asked for"
        words = f"the disk or quota is full ({error.strerror}): not everything could be written to {where}. Free some space and try again."
        return refuse(InputError(words), wants_json=False)


def refuse(error: AlgoristError, *, wants_json: bool) -> int:
    """Say what is wrong, as text and where asked for as the one JSON object; the exit code."""
    say(f"algorist: {error}" if error.exit_code != 75 else str(error))
    with talking(sys.stdout):
        if wants_json:
            emit({"error": str(error), "kind": type(error).__name__, "exit_code": error.exit_code})
        sys.stdout.flush()
    return error.exit_code


def emit(value: JSON) -> None:
    """One JSON object on standard output: what --json promises."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, sort_keys=True) + "\n")
    sys.stdout.flush()


def say(message: str) -> None:
    """A line for people, on standard error."""
    with talking(sys.stderr):
        sys.stderr.write(message + "\n")
        sys.stderr.flush()


@contextlib.contextmanager
def talking(stream: TextIO) -> Iterator[None]:
    """Inside, the stream may be a file on a full disk: what is said is lost, the work and its exit code are not."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        _to_nowhere(stream)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The --json flag every verb has."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on standard output, progress on standard error"
    )


def quiet_libraries() -> None:
    """Offline, no advice, no bars of other libraries; our own progress says what matters."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is first imported, so it must come before
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("transformers").setLevel(logging.ERROR)


def _to_nowhere(stream: TextIO) -> None:
    """Let Python's own flush at exit succeed: it would change the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def stop_on_request(message: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C, SIGTERM or SIGUSR1 asks the run to finish its step and commit; a second one ends it at once."""
    asked = threading.Event()

    def handle(number: int, _: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        message(f"{signal.Signals(number).name}: finishing this step, then saving; once more to stop at once")

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
