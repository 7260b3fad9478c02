"""Pages and tables that people look at, made from what a run folder holds and from nothing else."""

from algorist.report.page import build
from algorist.report.table import summary_table

__all__ = ["build", "summary_table"]
