"""SealedNumbers: a set of whole numbers as ranges; numbers of messages that are done with are mostly consecutive."""

from __future__ import annotations

import numpy as np


class SealedNumbers:
    """`first` and `last` of each range, sorted; no two ranges touch."""

    def __init__(self, first: np.ndarray, last: np.ndarray) -> None:
        self.first = first
        self.last = last

    @classmethod
    def of(cls, numbers: np.ndarray) -> SealedNumbers:
        """Of these numbers."""
        found = np.unique(numbers)
        begins = np.append(True, np.diff(found) != 1)[: len(found)]
        ends = np.append(begins[1:], True)[: len(found)]
        return cls(found[begins], found[ends])

    def has(self, numbers: np.ndarray) -> np.ndarray:
        """Which of these are in the set."""
        if not len(self.first):
            return np.zeros(len(numbers), bool)
        place = np.searchsorted(self.first, numbers, "right") - 1
        return np.asarray((place >= 0) & (numbers <= self.last[np.maximum(place, 0)]))

    def has_common(self, other: SealedNumbers) -> bool:
        """Some number is in both sets."""
        before = np.searchsorted(other.first, self.last, "right") - 1
        if not len(other.first) or not len(self.first):
            return False
        return bool(((before >= 0) & (other.last[np.maximum(before, 0)] >= self.first)).any())

    def join(self, other: SealedNumbers) -> SealedNumbers:
        """Both sets, which have no number in common."""
        order = np.argsort(np.concatenate((self.first, other.first)), kind="stable")
        first = np.concatenate((self.first, other.first))[order]
        last = np.concatenate((self.last, other.last))[order]
        begins = np.append(True, first[1:] != last[:-1] + 1)[: len(first)]
        return SealedNumbers(first[begins], last[np.append(begins[1:], True)[: len(first)]])
