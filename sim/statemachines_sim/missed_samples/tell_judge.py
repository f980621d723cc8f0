"""Tell judge: whether a subscriber may tell its application what it tells: samples and losses, in order, each once."""

from __future__ import annotations

from collections.abc import Callable

from statemachines.missed_samples.message import Deliver, Missed
from statemachines.missed_samples.recovery import MS
from statemachines_sim.missed_samples.book import Book
from statemachines_sim.missed_samples.reader import Reader
from statemachines_sim.missed_samples.section import Section
from statemachines_sim.node_life import NodeLife


class ToldJudge:
    """`check(property, holds, detail)` says what is broken; `counts`: "delivered", "missed" and "longest_ms"."""

    def __init__(self, own: Section, check: Callable[[str, bool, str], None], counts: dict[str, int]) -> None:
        self._own = own
        self._check = check
        self._counts = counts

    def tell(
        self, reader: Reader, process: NodeLife, party: str, told: Deliver | Missed, first: int, last: int, now_ns: int
    ) -> None:
        """Numbers `first` to `last`, as the publisher counts them, are told."""
        book = reader.books.get(told.source)
        where = f"{party}: {type(told).__name__} {first}..{last} of {told.source}"
        if book is None:
            self._check("INVENTED", False, f"{where}, of which nothing is known")
            return
        self._check("ORDER", not book.waits, f"{where}, while the first query is open")
        self._check("ORDER", first >= book.begin, f"{where}, before the first, {book.begin}")
        self._check("ONCE", first >= book.next, f"{where}, and everything below {book.next} is settled")
        self._check("REPORT", first == book.next, f"{where}, and nothing was said of {book.next}")
        self._check("INVENTED", last < book.top, f"{where}, and {book.top} was never heard of")
        self.judge_wait(reader, process, book, now_ns)
        if isinstance(told, Deliver):
            came = all(number in book.arrived for number in range(first, last + 1))
            self._check("INVENTED", came, f"{where}, and not all of it has come")
            self._counts["delivered"] += last - first + 1
        else:
            self._judge_missed(book, first, last, where)
        book.settle(first, last)

    def judge_wait(self, reader: Reader, process: NodeLife, book: Book, now_ns: int) -> None:
        """LIVE, from when something that was missing has come; who stands still, or holds what is ahead of the first
        query's end, is given that time."""
        waited = book.waiting_ns(now_ns, reader.free_since_ns)
        self._counts["longest_ms"] = max(self._counts["longest_ms"], waited // MS)
        still = min(waited, now_ns - book.moved_ns)
        detail = f"{process.life}: {book.next} of {book.source} is waited for since {waited} ns, {still} in vain"
        self._check("LIVE", process.is_paused or still <= book.longest_ns, detail)

    def _judge_missed(self, book: Book, first: int, last: int, where: str) -> None:
        numbers = range(first, last + 1)
        self._check("NOGAP", not book.arrived.intersection(numbers), f"{where}, which has come")
        crowded = len(book.arrived) > self._own.recovery.pending
        hasty = not crowded and not (book.is_convicted(first) and book.is_convicted(last))
        self._check("HASTY", not hasty, f"{where}, which was not asked for often enough")
        self._check("WHOLE", not self._own.whole, f"{where}, where nothing may be missed")
        self._counts["missed"] += len(numbers)
