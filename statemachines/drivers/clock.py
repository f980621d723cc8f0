"""Clock: what tells a driver the time."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], int]
"""Nanoseconds, since the epoch or of a monotonic clock."""
