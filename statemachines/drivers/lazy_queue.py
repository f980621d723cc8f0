"""LazyQueue: a queue of which a process has thousands, nearly all of them empty."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class LazyQueue(Generic[T]):
    """First in, first out.  An empty one takes 40 bytes, where a `deque` takes 760."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: deque[T] | None = None
        """None where it is empty: to look costs no call."""

    def append(self, item: T) -> None:
        """At the end."""
        if self.items is None:
            self.items = deque()
        self.items.append(item)

    def extend(self, items: Iterable[T]) -> None:
        """The same with each of these."""
        if self.items is None:
            self.items = deque(items) or None
        else:
            self.items.extend(items)

    @property
    def first(self) -> T:
        """The next; raises `IndexError` where there is none."""
        if self.items is None:
            raise IndexError("an empty queue has no first item")
        return self.items[0]

    def popleft(self) -> T:
        """Take the next; raises `IndexError` where there is none."""
        if self.items is None:
            raise IndexError("an empty queue has no first item")
        first = self.items.popleft()
        if not self.items:
            self.items = None
        return first

    def clear(self) -> None:
        """Without any."""
        self.items = None

    def __len__(self) -> int:
        return 0 if self.items is None else len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items or ())
