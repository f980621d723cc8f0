"""UnnumberedHistory: which samples without a number are from before a subscriber came.

zenoh's advanced publishers with a cache alone number nothing, and stamp with the time.  A sample of the history is
passed on if it is older than the first of its key that came by itself, and newer than what history has brought.
"""

from __future__ import annotations

from typing import Any, Final

from statemachines.drivers.missed_samples.received_sample import ReceivedSample

KEYS_MAX: Final = 10_000
"""Of so many keys it is known where the history ends; of others none is passed on."""


class UnnumberedHistory:
    """By key: the time of the first sample that came by itself, and of the last of the history."""

    def __init__(self) -> None:
        self._began: dict[str, Any] = {}
        self._reached: dict[str, Any] = {}

    def note(self, sample: ReceivedSample) -> bool:
        """It has come by itself; False: history has brought it already."""
        key, time = sample.key_expr, sample.timestamp
        if time is None:
            return True
        if len(self._began) < KEYS_MAX:
            self._began.setdefault(key, time)
        reached = self._reached.get(key)
        return reached is None or time > reached

    def is_older(self, sample: ReceivedSample) -> bool:
        """It is of the history, and comes for the first time."""
        key, time = sample.key_expr, sample.timestamp
        if time is None or (key not in self._reached and len(self._reached) >= KEYS_MAX):
            return False
        began, reached = self._began.get(key), self._reached.get(key)
        if (began is not None and time >= began) or (reached is not None and time <= reached):
            return False
        self._reached[key] = time
        return True
