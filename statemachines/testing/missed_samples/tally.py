"""Tally: what one subscriber made of the samples that were put: what it delivered, when, and what it called missed."""

from __future__ import annotations

import time
from statistics import quantiles

import msgspec


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """`undelivered` of the samples; `reported`: numbers it called missed; all are in the cache, so that each is one too
    many; `silent`: neither delivered nor reported; `disorder`: delivered behind a higher number; `duplicates`;
    `recovered` of the `lost`; milliseconds from the put of a lost one to its delivery, median and 99th percentile
    (None: nothing was recovered)."""

    undelivered: int
    reported: int
    silent: int
    disorder: int
    duplicates: int
    lost: int
    recovered: int
    median_ms: float | None
    p99_ms: float | None


class DeliveryTally:
    """`came`: number to the time of its delivery; `changed`: when it was last told anything."""

    def __init__(self) -> None:
        self.came: dict[int, float] = {}
        self.changed = time.monotonic()
        self._missed: set[int] = set()
        self._unnamed = 0
        self._highest = -1
        self._disorder: list[int] = []
        self._duplicates: list[int] = []

    def deliver(self, number: int) -> None:
        """A sample came."""
        self.changed = time.monotonic()
        if number in self.came:
            self._duplicates.append(number)
            return
        if number < self._highest:
            self._disorder.append(number)
        self._highest = max(self._highest, number)
        self.came[number] = self.changed

    def miss(self, first: int, last: int) -> None:
        """It said that these are missed."""
        self._missed.update(range(first, last + 1))
        self.changed = time.monotonic()

    def miss_some(self, count: int) -> None:
        """It said that so many are missed, and not which."""
        self._unnamed += count
        self.changed = time.monotonic()

    def is_settled(self, numbers: range) -> bool:
        """Whether each is delivered or called missed."""
        return not self._silent(numbers)

    def _silent(self, numbers: range) -> int:
        """How many are neither; of those that were missed without a name any may be meant."""
        unsaid = sum(number not in self.came and number not in self._missed for number in numbers)
        return max(0, unsaid - self._unnamed)

    def outcome(self, numbers: range, lost: dict[int, float]) -> DeliveryOutcome:
        """About these numbers; `lost`: those whose first transmission was lost, and when each was put."""
        undelivered = [number for number in numbers if number not in self.came]
        spent = sorted(1_000 * (self.came[number] - put) for number, put in lost.items() if number in self.came)
        hundredths = quantiles(spent, n=100, method="inclusive") if len(spent) > 1 else spent * 99
        return DeliveryOutcome(
            undelivered=len(undelivered),
            reported=len(self._missed) + self._unnamed,
            silent=self._silent(numbers),
            disorder=sum(number in numbers for number in self._disorder),
            duplicates=sum(number in numbers for number in self._duplicates),
            lost=len(lost),
            recovered=len(spent),
            median_ms=hundredths[49] if spent else None,
            p99_ms=hundredths[98] if spent else None,
        )
