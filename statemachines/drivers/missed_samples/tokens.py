"""Tokens: which publishers were there before us, and which came up while we were there."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

SEEN_MAX: Final = 10_000
"""So many sources are remembered; one that comes back after more others is taken for one that was there before."""


class Tokens:
    """A source is new if its token comes after `begin` for the first time: one that comes back with its link is not."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._begun = False
        self._forgot = False

    def begin(self) -> None:
        """What was there when we came has been told."""
        self._begun = True

    def is_new(self, source: str) -> bool:
        """Its token has come."""
        new = self._begun and source not in self._seen and not self._forgot
        self.note(source)
        return new

    def note(self, source: str) -> None:
        """It is there."""
        self._seen[source] = None
        self._seen.move_to_end(source)
        while len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
            self._forgot = True
