"""What a run promises beforehand, what it checks while running, and what it leaves as evidence."""
