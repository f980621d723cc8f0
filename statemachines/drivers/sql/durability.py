"""Durability: what a committed transaction survives."""

from enum import StrEnum


class Durability(StrEnum):
    """What a store that is a file does at each commit."""

    PROCESS = "process"
    """It survives the death of every process; a power failure may lose the last transactions, and nothing before."""
    POWER = "power"
    """It survives a power failure: each commit waits for fsync."""
