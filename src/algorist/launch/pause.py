"""What a disk that is full, read-only or failing means for a run: it pauses, loses nothing committed, and says so once."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

from algorist.errors import Paused
from algorist.record import commit
from algorist.record.run_folder import RunFolder
from algorist.record.storage import FolderGone, WriteFailed, write_failure


@contextlib.contextmanager
def failures_pause(folder: RunFolder) -> Iterator[None]:
    """Inside, a failure to write ends in Paused (exit code 75), whoever meets it; a folder that is gone stays an error (2)."""
    try:
        yield
    except FolderGone:
        raise
    except WriteFailed as failure:
        raise paused(folder, failure) from failure
    except (OSError, SafetensorError) as error:
        named = getattr(error, "filename", None)
        failure_ = write_failure(error, Path(named) if isinstance(named, str) else folder.root)
        if failure_ is None:
            raise
        raise paused(folder, failure_) from error


def paused(folder: RunFolder, failure: WriteFailed) -> Paused:
    """One message: what failed with its figures, what is kept, what to do."""
    if not folder.contract.is_file():
        return Paused(f"{failure.fact}. Nothing was begun. {failure.remedy}, then start it with the same command.")
    newest = next(
        (p.name for p in reversed(commit.numbered(folder.checkpoints)) if (p / commit.MANIFEST).is_file()), None
    )
    kept = f"everything up to checkpoint {newest} is kept" if newest else "nothing had been trained yet"
    return Paused(
        f"{failure.fact}. The run is paused: nothing half written was left, {kept}. {failure.remedy}, then go on with: "
        f"algorist resume {shlex.quote(str(folder.root))}"
    )
