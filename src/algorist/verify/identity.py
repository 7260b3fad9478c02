"""What identifies a verifier: its sources and the versions of the libraries that take part in a proof."""

from __future__ import annotations

import functools
import platform
from importlib import metadata
from pathlib import Path

from algorist.digest import digest, file_digest


@functools.cache
def version() -> str:
    """sha256 over the sources of this room and the versions of python, sympy and mpmath.

    Two runs with equal digests give equal verdicts, so a contract records it.

    >>> len(version())
    64
    """
    room = Path(__file__).parent
    sources = {path.name: file_digest(path) for path in sorted(room.glob("*.py"))}
    libraries = {name: metadata.version(name) for name in ("sympy", "mpmath")}
    return digest({"sources": sources, "libraries": libraries, "python": platform.python_version()})
