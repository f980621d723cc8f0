"""Memory: which subjects a window must remember, reckoned anew from the words of the protocol's page.

It shares nothing with the machines: two sets of subjects, when the window turned last, and how much is in them.
"""

from __future__ import annotations

from collections.abc import Iterable


class WindowMemory:
    """`size` bytes, of `overhead` and the subject each; it turns after `time_ns` of the host's own clock."""

    def __init__(self, size: int, time_ns: int, overhead: int, now_ns: int) -> None:
        self._size = size
        self._time_ns = time_ns
        self._overhead = overhead
        self._turned_ns = now_ns
        self._current: set[str] = set()
        self._old: set[str] = set()

    def __contains__(self, subject: str) -> bool:
        return subject in self._current or subject in self._old

    def touch(self, subject: str) -> None:
        """Something came of it, or was sent on it."""
        self._old.discard(subject)
        self._current.add(subject)

    def drop(self, subject: str) -> None:
        """It is not remembered any more."""
        self._old.discard(subject)
        self._current.discard(subject)

    def tick(self, now_ns: int) -> Iterable[str]:
        """The host looks at its window; the subjects that it forgets by that."""
        kept = sum(self._overhead + len(subject) for subject in (*self._current, *self._old))
        if now_ns - self._turned_ns <= self._time_ns or kept <= self._size:
            return ()
        forgotten, self._old, self._current = self._old, self._current, set()
        self._turned_ns = now_ns
        return sorted(forgotten)
