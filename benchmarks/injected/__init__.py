"""Deliberate faults by kind, each with the gate that must catch it; gathered in faults.py."""
