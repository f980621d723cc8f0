"""DeliveredMessages: what is stored and committed for one session, and what of it its client gets.

seen = seen.observe_stored("writer-1", ("t", "m1"))              a row of this writer brings this copy
seen = seen.observe_committed(((("t", "m1"), 7),))               it is in flight under this packet
seen, broken = seen.observe_delivery(CopyDelivered(("t", "m1"), 7))
outstanding = seen.find_outstanding()                            what must come, and has not (COMPLETE)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty, Map

Copy = tuple[str, str]
"""(filter, message): a message comes once by each filter."""
Broken = tuple[BrokenProperty, ...]


class MessageProperty(Enum):
    """What is promised of messages; the value says how it breaks."""

    GAP = "a message is left out"
    TWICE = "a message comes twice, and not as a redelivery under its packet id"
    UNCOMMITTED = "what comes was not committed"
    UNSTORED = "a publisher is answered, and nothing is stored"
    MAXIMUM = "more is in flight than the client receives"
    STRANGER = "a message comes that was never stored"
    ORDER = "a message comes before one that its publisher saw answered before it sent it"
    AGED = "a message comes that was over before it was sent, or is said to be over and was not"

    def breaks(self, detail: str) -> Broken:
        """It does not hold."""
        return (BrokenProperty(self.name, detail),)


class PublishedMessages(msgspec.Struct, frozen=True, gc=False):
    """How many answers publishers had when each message was `handed` over last, and when it was `answered`."""

    handed: Map[str, int] = Map()
    answered: Map[str, int] = Map()

    def observe_handed(self, message: str) -> PublishedMessages:
        """A publisher hands this over."""
        return replace(self, handed=self.handed.set(message, len(self.answered)))

    def observe_answered(self, message: str) -> PublishedMessages:
        """Its publisher knows that it is stored."""
        if message in self.answered:
            return self
        return replace(self, answered=self.answered.set(message, len(self.answered)))

    def is_known_before(self, earlier: str, later: str) -> bool:
        """One was answered before the other was handed over."""
        return self.answered.get(earlier, len(self.answered)) < self.handed.get(later, 0)


NOTHING = PublishedMessages()


class CopyDelivered(msgspec.Struct, frozen=True, gc=False):
    """A copy comes to the client under this `packet` (0: QoS 0); `is_repeated`: marked so; `is_released`: the client
    needs it no more, as far as its node knows.  `number` of the message over the connection `line` of its publisher
    (0: unknown)."""

    copy: Copy
    packet: int
    is_repeated: bool = False
    is_released: bool = False
    line: str = ""
    number: int = 0


class WriterRows(msgspec.Struct, frozen=True, gc=False):
    """The copies that rows of one writer bring, in the order in which they were stored; the `last` that has come."""

    copies: Map[int, Copy] = Map()
    last: int = -1


class DeliveredMessages(msgspec.Struct, frozen=True, gc=False):
    """`writers` with their rows, and the first `places` of copies in them, with their publishers; those that need not
    come (`excused`), or must not (`over`); packets under which they ever were `committed`; the packet under which each
    has come (`had`).  `awaited` of each publisher; `numbers` of its messages that came last.  `forgets`: a copy that is
    left out counts as come, so that there are fewer values."""

    writers: Map[str, WriterRows] = Map()
    places: Map[Copy, tuple[str, int, str]] = Map()
    excused: Map[Copy, bool] = Map()
    over: Map[Copy, bool] = Map()
    committed: Map[tuple[Copy, int], bool] = Map()
    had: Map[Copy, int] = Map()
    awaited: Map[str, Map[Copy, bool]] = Map()
    numbers: Map[str, int] = Map()
    forgets: bool = False

    # -- the database -------------------------------------------------------------------------------------------

    def observe_stored(
        self, writer: str, copy: Copy, *, publisher: str = "", is_needed: bool = True
    ) -> DeliveredMessages:
        """A row of this writer brings it; messages of one `publisher` ("": unknown) come in their order."""
        rows = self.writers.get(writer, WriterRows())
        place = len(rows.copies)
        writers = self.writers.set(writer, WriterRows(rows.copies.set(place, copy), rows.last))
        places = self.places if copy in self.places else self.places.set(copy, (writer, place, publisher))
        excused = self.excused if is_needed else self.excused.set(copy, True)
        awaited = self.awaited
        if publisher and is_needed:
            awaited = awaited.set(publisher, awaited.get(publisher, Map()).set(copy, True))
        return replace(self, writers=writers, places=places, excused=excused, awaited=awaited)

    def observe_committed(self, packets: Iterable[tuple[Copy, int]]) -> DeliveredMessages:
        """These are in flight in the committed state."""
        return replace(self, committed=self.committed.update((one, True) for one in packets))

    def observe_over(self, copies: Iterable[Copy]) -> DeliveredMessages:
        """These are over, and were neither in flight nor sent."""
        after = self
        for copy in copies:
            after = replace(after, over=after.over.set(copy, True), awaited=after._stop_waiting(copy))
        return after

    def observe_lost(self, copy: Copy) -> DeliveredMessages:
        """It need not come: retention has removed it."""
        return replace(self, excused=self.excused.set(copy, True), awaited=self._stop_waiting(copy))

    # -- the client ---------------------------------------------------------------------------------------------

    def observe_delivery(
        self, event: CopyDelivered, published: PublishedMessages = NOTHING
    ) -> tuple[DeliveredMessages, Broken]:
        """It comes."""
        copy, packet = event.copy, event.packet
        if copy not in self.places:
            return self, MessageProperty.STRANGER.breaks(f"{copy} comes, which nobody has stored")
        broken: Broken = ()
        if packet and (copy, packet) not in self.committed:
            broken = MessageProperty.UNCOMMITTED.breaks(f"{copy} comes under {packet}, which nobody has committed")
        if copy in self.over:
            return self, MessageProperty.AGED.breaks(f"{copy} comes, which had expired before it was sent") + broken
        had = self.had.get(copy)
        if had is not None:
            return self, broken + judge_repetition(event, had)
        after, more = self._take(event, published)
        return after, broken + more

    def judge_answer(self, copy: Copy) -> Broken:
        """A publisher is told that it is stored."""
        if copy in self.places:
            return ()
        return MessageProperty.UNSTORED.breaks(f"{copy} is answered, and there is no row of it")

    def judge_late(self, copies: Iterable[Copy]) -> Broken:
        """These are put in flight, being over."""
        late = sorted(copies)
        return MessageProperty.AGED.breaks(f"{late} are put in flight, being over") if late else ()

    def judge_expiry(self, copy: Copy) -> Broken:
        """An owner says that it is over."""
        return () if copy in self.over else MessageProperty.AGED.breaks(f"{copy} is said to be over, and is not")

    def find_outstanding(self) -> Copy | None:
        """What must come, and has not."""
        return next((copy for writer in sorted(self.writers) for copy in self._outstanding(self.writers[writer])), None)

    def list_newest(self, writer: str) -> Iterator[Copy]:
        """What this writer has stored, the last first."""
        copies = self.writers.get(writer, WriterRows()).copies
        return (copies[place] for place in range(len(copies) - 1, -1, -1))

    def _outstanding(self, rows: WriterRows) -> Iterator[Copy]:
        between = (rows.copies[place] for place in range(rows.last + 1, len(rows.copies)))
        return (copy for copy in between if copy not in self.over and copy not in self.excused)

    def _take(self, event: CopyDelivered, published: PublishedMessages) -> tuple[DeliveredMessages, Broken]:
        """It comes for the first time."""
        copy = event.copy
        writer, place, publisher = self.places[copy]
        rows = self.writers[writer]
        left_out = [rows.copies[one] for one in range(rows.last + 1, place)]
        missed = [one for one in left_out if one not in self.over and one not in self.excused]
        if missed:
            return self, MessageProperty.GAP.breaks(f"{copy} comes, and {missed[0]} has not come")
        had = self.had.set(copy, event.packet)
        if self.forgets:
            had = had.update((one, 0) for one in left_out)
        broken: Broken = ()
        if place < rows.last:
            broken = MessageProperty.GAP.breaks(f"{copy} comes after what was stored later")
        numbers = self.numbers
        if event.number:
            last = numbers.get(event.line, 0)
            if event.number <= last:
                broken += MessageProperty.GAP.breaks(f"{copy} comes after number {last} of {event.line}")
            numbers = numbers.set(event.line, event.number)
        awaited = self._stop_waiting(copy)
        earlier = [one for one in awaited.get(publisher, ()) if published.is_known_before(one[1], copy[1])]
        if earlier:
            text = f"{copy} comes before {min(earlier)}, which was answered before that was sent"
            broken += MessageProperty.ORDER.breaks(text)
        writers = self.writers.set(writer, WriterRows(rows.copies, max(rows.last, place)))
        return replace(self, writers=writers, had=had, awaited=awaited, numbers=numbers), broken

    def _stop_waiting(self, copy: Copy) -> Map[str, Map[Copy, bool]]:
        """What is awaited without it; of a publisher of which nothing is there is no entry."""
        publisher = self.places[copy][2] if copy in self.places else ""
        waiting = self.awaited.get(publisher, Map())
        if copy not in waiting:
            return self.awaited
        rest = waiting.delete(copy)
        return self.awaited.set(publisher, rest) if rest else self.awaited.delete(publisher)


def judge_repetition(event: CopyDelivered, had: int) -> Broken:
    """A copy comes that came before, under the packet `had`: marked, and under this packet, unless it is released."""
    copy, packet = event.copy, event.packet
    if not event.is_repeated or packet != had or not packet:
        text = f"{copy} has come under {had}, and comes under {packet}, dup = {event.is_repeated}"
        return MessageProperty.TWICE.breaks(text)
    return MessageProperty.TWICE.breaks(f"{copy} comes, which its client has acknowledged") if event.is_released else ()


def judge_place(copy: Copy, known: tuple[str, int, int], found: tuple[str, int, int]) -> Broken:
    """A row (writer, epoch, number) brings it that another row is known to bring."""
    return () if found == known else MessageProperty.TWICE.breaks(f"{copy} is stored as {found} and {known}")


def judge_room(count: int, most: int) -> Broken:
    """So many messages are in flight to a client that receives so many."""
    return () if count <= most else MessageProperty.MAXIMUM.breaks(f"the client receives {most}, and has {count}")


def judge_rest(outstanding: Copy | None, unfinished: Sequence[object]) -> Broken:
    """Nobody has anything to do: everything has come, and nothing is in flight or queued."""
    if outstanding is not None:
        return (BrokenProperty("COMPLETE", f"{outstanding} has not come"),)
    return (BrokenProperty("COMPLETE", f"{list(unfinished)} are not done"),) if unfinished else ()
