"""Reader: what a judge knows of one life of a subscriber, from what came to it."""

from __future__ import annotations

from collections.abc import Callable

from statemachines.kernel import Event
from statemachines.missed_samples.message import EVERY_SOURCE, Heartbeat, QueryEnded, Sample, TurnedAway, Unnumbered
from statemachines.missed_samples.source_record import Appeared, Disappeared, PeriodOver, QueryTimeout
from statemachines.missed_samples.subscriber_record import HistoryTimeout
from statemachines_sim.missed_samples.book import Book
from statemachines_sim.missed_samples.section import Section


class Reader:
    """`number(source, sn)`: what the wire's number stands for.  `books` by source; `touched`: those of them that the
    last step was about; `history`: the first query is open, or sent again soon, after so
    many `tries`; `turning`: a sample for which there is no place is being
    handled; `turned_away`: how many there were; `strangers`: who was turned away, or forgotten; `periodic`: who is
    asked unprompted; `unnumbered`: samples without source that are not passed on yet; `met`: how many first contacts
    there were; `free_since_ns`: holes last from then on at most."""

    def __init__(self, own: Section, number: Callable[[str, int], int]) -> None:
        self.books: dict[str, Book] = {}
        self.history = own.history is not None
        self.touched: set[str] = set()
        self.turning: TurnedAway | None = None
        self.turned_away = 0
        self.strangers: set[str] = set()
        self.periodic = ""
        self.unnumbered = 0
        self.met = 0
        self.free_since_ns = 0
        self.tries = 0
        self._own = own
        self._number = number

    def note(self, event: Event, now_ns: int) -> None:
        """It came."""
        match event:
            case Sample(source, first, last):
                self._note_sample(source, first, last, now_ns)
            case Heartbeat(source, last):
                book = self._meet(source)
                if book is not None and last >= 0:
                    number = self._number(source, last)
                    book.beat(number, now_ns)
                    self.touched.add(source)
            case Appeared(source, new):
                book = self._meet(source)
                if book is not None:
                    book.alive = True
                    book.new = new if book.begin < 0 else book.new
            case Disappeared(source):
                if source in self.books:
                    self.books[source].alive = False
            case QueryEnded(source, n, brought):
                if source == EVERY_SOURCE:
                    if brought or (n == self.tries and self._was_last_try):
                        self._end_history(now_ns)
                elif source in self.books:
                    self.books[source].query_over(n, brought, now_ns)
                    self.touched.add(source)
            case QueryTimeout(key):
                if key in self.books:
                    self.books[key].silence(now_ns)
                    self.touched.add(key)
            case HistoryTimeout():
                if self._was_last_try:
                    self._end_history(now_ns)
            case PeriodOver(key):
                self.periodic = key
            case Unnumbered():
                self.unnumbered += 1

    @property
    def _was_last_try(self) -> bool:
        return self.tries > self._own.recovery.retries

    def forget(self, source: str) -> None:
        """It is not known any more."""
        self.strangers.add(source)
        del self.books[source]

    def _note_sample(self, source: str, first: int, last: int, now_ns: int) -> None:
        book = self._meet(source)
        if book is None:
            self.strangers.add(source)
            begin = first + (0 if self._own.width == 64 else 1 << self._own.width)
            self.turning = TurnedAway(source, begin, begin + last - first)
            return
        number = self._number(source, first)
        book.take(number, number + last - first, now_ns)
        if book.waits and len(book.arrived) > self._own.recovery.history_limit:
            book.waits = False
        self.touched.add(source)

    def _meet(self, source: str) -> Book | None:
        """Its book; a new one, where there is a place."""
        book = self.books.get(source)
        if book is None and len(self.books) < self._own.recovery.sources:
            book = self.books[source] = Book(source, self.history, self._own.recovery)
            self.met += 1
        return book

    def _end_history(self, now_ns: int) -> None:
        """Holes last from now on."""
        if self.history:
            self.history = False
            self.free_since_ns = now_ns
        for source, book in self.books.items():
            book.waits = False
            self.touched.add(source)
