"""python -m algorist"""

from algorist.cli import entry

entry()
