"""python -m algorist.cli"""

from algorist.cli import entry

entry()
