"""Statuses: the states of a machine, an enum whose values are the names in traces and diagrams."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """Base of every enum of states.  Hashed by identity: `Enum` hashes its name in Python, once per dispatch."""

    __hash__ = object.__hash__
