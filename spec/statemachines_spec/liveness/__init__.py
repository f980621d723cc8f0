"""Liveness: whether obligations are met once faults have stopped."""
