"""A checked recipe to a finished run: prepare in memory, write the contract, run the stages in order, resume."""
