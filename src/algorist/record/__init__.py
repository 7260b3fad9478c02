"""What a run writes down: ledger, metrics, rollouts, committed directories, and the folder that holds them.

Everything here survives a kill at any instruction: a file is either the one before the write or the one after it, and
an append-only file loses at most the line that was being written. No torch, no model, no network.
"""
