"""Observers: the machines of all cursors and blocks of a queue, fed by the accesses of its processes as they happen.

    observers = Observers(queue)
    observers.accessed(slot, incarnation, request, answer, now_ns)  # after each access, in the order they were made
    observers.died(slot, incarnation)

An access that must never be made is a `ProtocolError` of the machine that it hits.  It judges words alone: what anybody
was told is for others.  Only for queues where the death of an owner is known.

Memory block: one block of the data area as an observer sees it, from its reservation until a reader has passed it.

It decides nothing: it is fed the accesses to its words (`observers`), and refuses those that cannot be where the death
of an owner is known: a mark before the size, data before the mark, a reader that takes what a living writer is still
writing, or passes what was acknowledged.
"""

from __future__ import annotations

import msgspec

from statemachines.cursor_recovery import cursor
from statemachines.cursor_recovery.cursor import CURSOR, CursorRecord
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    HEADER,
    NONE,
    READ_HEAD,
    WRITE_HEAD,
    CompareAndSwap,
    CopyIn,
    Queue,
    Store,
    Swapped,
    is_aged,
)
from statemachines.kernel import Answer, Call, Fsm, LocalProtocolError, Node, Refuse, Request, Row, Status


class Sized(Call, frozen=True, gc=False):
    """Its writer stored its size."""


class Checksummed(Call, frozen=True, gc=False):
    """Its writer stored its checksum."""


class HalfMarked(Call, frozen=True, gc=False):
    """Its writer stored the low half of its commit word."""


class Marked(Call, frozen=True, gc=False):
    """Its writer stored the high half."""


class Filled(Call, frozen=True, gc=False):
    """Its writer copied its data; where there is none, as soon as it is marked."""


class LetGo(Call, frozen=True, gc=False):
    """Its writer freed its cursor."""


class WriterDied(Call, frozen=True, gc=False):
    """Its writer died before that."""


class HeadMoved(Call, frozen=True, gc=False):
    """A reader that has its position moved the read head over it: it takes it."""


class HeadSkipped(Call, frozen=True, gc=False):
    """A reader moved the read head over it, to what comes behind it."""


class BlockStatus(Status):
    """`WRITTEN`: its writer has let go of it, and it is acknowledged; `LEFT`: its writer died before its mark was
    there; `LEFT_MARKED`: after that, so only its checksum tells whether it is whole."""

    RESERVED = "reserved"
    SIZED = "sized"
    CHECKSUMMED = "checksummed"
    HALF_MARKED = "half_marked"
    COMMITTED = "committed"
    FILLED = "filled"
    WRITTEN = "written"
    LEFT = "left"
    LEFT_MARKED = "left_marked"
    CONSUMED = "consumed"
    SKIPPED = "skipped"


S = BlockStatus
UNMARKED = (S.RESERVED, S.SIZED, S.CHECKSUMMED, S.HALF_MARKED)
WRITING = (*UNMARKED, S.COMMITTED, S.FILLED)
LEFT = (S.LEFT, S.LEFT_MARKED)
FINAL = (S.CONSUMED, S.SKIPPED)


class BlockRecord(msgspec.Struct, frozen=True, gc=False):
    """The bytes from `position` to before `end`, reserved by the owner in `slot` and `incarnation`."""

    position: int
    end: int
    slot: int = 0
    incarnation: int = 1
    status: BlockStatus = S.RESERVED


# fmt: off
ROWS = (
    #   on           from                         to               do    when  clause
    Row(Sized,       S.RESERVED,                  S.SIZED,         None, None, "CR-20"),
    Row(Checksummed, S.SIZED,                     S.CHECKSUMMED,   None, None, "CR-20"),
    Row(HalfMarked,  S.CHECKSUMMED,               S.HALF_MARKED,   None, None, "CR-20"),
    Row(Marked,      S.HALF_MARKED,               S.COMMITTED,     None, None, "CR-20"),
    Row(Filled,      S.COMMITTED,                 S.FILLED,        None, None, "CR-21"),
    Row(LetGo,       S.FILLED,                    S.WRITTEN,       None, None, "CR-36"),
    Row(WriterDied,  UNMARKED,                    S.LEFT,          None, None, "CR-37"),
    Row(WriterDied,  (S.COMMITTED, S.FILLED),     S.LEFT_MARKED,   None, None, "CR-37"),
    Row(HeadMoved,   (S.WRITTEN, S.LEFT_MARKED),  S.CONSUMED,      None, None, "CR-44"),
    Row(HeadSkipped, LEFT,                        S.SKIPPED,       None, None, "CR-46"),
    Refuse((Sized,),       (*WRITING[1:], S.WRITTEN, *LEFT),                                        "CR-20"),
    Refuse((Checksummed,), (S.RESERVED, *WRITING[2:], S.WRITTEN, *LEFT),                            "CR-20"),
    Refuse((HalfMarked,),  (*WRITING[:2], *WRITING[3:], S.WRITTEN, *LEFT),                          "CR-20"),
    Refuse((Marked,),      (*WRITING[:3], S.COMMITTED, S.FILLED, S.WRITTEN, *LEFT),                 "CR-20"),
    Refuse((Filled,),      (*UNMARKED, S.FILLED, S.WRITTEN, *LEFT),                                 "CR-20"),
    Refuse((LetGo,),       (*UNMARKED, S.COMMITTED, S.WRITTEN, *LEFT),                              "CR-36"),
    Refuse((WriterDied,),  (S.WRITTEN, *LEFT),                                                      "CR-37"),
    Refuse((HeadMoved,),   (*WRITING, S.LEFT),                                                      "CR-44"),
    Refuse((HeadSkipped,), (*WRITING, S.WRITTEN),                                                   "CR-36"),
)
# fmt: on


BLOCK = Fsm(
    "memory_block",
    protocol="cursor_recovery",
    record=BlockRecord,
    states=BlockStatus,
    initial=S.RESERVED,
    final=FINAL,
    rows=ROWS,
)


_CELLS: tuple[type[Call], ...] = (
    Sized,
    Checksummed,
    HalfMarked,
    Marked,
)
"""What the store into each cell of a header is."""


class Observers:
    """`cursors`: (pool, number) -> its machine; `blocks`: position -> the machine of a block that is not passed yet."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        pools = (("read", queue.read_cursors), ("write", queue.write_cursors))
        self.cursors = {
            (pool, number): Node(CURSOR, CursorRecord(pool, number), name=f"{pool}/{number}", now_ns=0, check=True)
            for pool, count in pools
            for number in range(count)
        }
        self.blocks: dict[int, Node[BlockRecord]] = {}

    def observe_access(self, slot: int, incarnation: int, request: Request, answer: Answer, now_ns: int) -> None:
        """The owner has made an access, and got this answer; loads change nothing."""
        match request:
            case CompareAndSwap(address) if isinstance(answer, Swapped) and answer.done:
                if address.endswith("/state"):
                    self._swapped_state(slot, incarnation, request, now_ns)
                elif address == WRITE_HEAD:
                    self._reserved(slot, incarnation, request)
                elif address == READ_HEAD:
                    self._judge_read_head(slot, incarnation, request)
            case Store(address, value) if address.startswith("data/"):
                self._stored(slot, incarnation, address, int(address[5:]))
            case Store(address, value) if address.endswith("/position"):
                self._placed(slot, incarnation, address, value)
            case CopyIn():
                self._feed_block(slot, incarnation, Filled(), f"{len(request.data)} bytes")

    def observe_death(self, slot: int, incarnation: int) -> None:
        """The process is dead: all that it had is orphaned."""
        for node in self.cursors.values():
            if node.record.is_of(slot, incarnation) and node.record.status in cursor.OWNED:
                node.feed(cursor.Died(), 0)
        block = self._block_of(slot, incarnation)
        if block is not None:
            block.feed(WriterDied(), 0)

    # -- cursors ----------------------------------------------------------------------------------------------------

    def _cursor(self, address: str) -> Node[CursorRecord]:
        pool, number, _ = address.split("/")
        return self.cursors[pool, int(number)]

    def _swapped_state(self, slot: int, incarnation: int, request: CompareAndSwap, now_ns: int) -> None:
        node = self._cursor(request.address)
        if request.value != FREE:
            node.feed(cursor.Taken(request.value), 0)
            return
        if node.record.is_of(slot, incarnation):
            node.feed(cursor.Released(), 0)
            if node.record.pool == "write" and self._block_of(slot, incarnation) is not None:
                self._feed_block(slot, incarnation, LetGo(), "")
            return
        is_orphaned = node.record.status is cursor.CursorStatus.ORPHANED
        if is_orphaned and is_aged(node.record.word, self.queue.threshold_ns, now_ns):
            node.feed(cursor.Aged(), 0)
        node.feed(cursor.Reclaimed(), 0)

    def _placed(self, slot: int, incarnation: int, address: str, value: int) -> None:
        node = self._cursor(address)
        event: Call = cursor.Cleared() if value == NONE else cursor.Placed(value)
        node.feed(event if node.record.is_of(slot, incarnation) else cursor.PlacedByOther(), 0)

    # -- blocks -----------------------------------------------------------------------------------------------------

    def _block_of(self, slot: int, incarnation: int) -> Node[BlockRecord] | None:
        """The one that the owner is writing."""
        for node in self.blocks.values():
            record = node.record
            if (record.slot, record.incarnation) == (slot, incarnation) and record.status in WRITING:
                return node
        return None

    def _reserved(self, slot: int, incarnation: int, request: CompareAndSwap) -> None:
        record = BlockRecord(request.expected, request.value, slot, incarnation)
        name = f"block-{record.position}"
        self.blocks[record.position] = Node(BLOCK, record, name=name, now_ns=0, check=True)

    def _stored(self, slot: int, incarnation: int, address: str, at: int) -> None:
        node = self._block_of(slot, incarnation)
        cell = -1 if node is None else (at - node.record.position) % self.queue.capacity // CELL
        if node is None or not 0 <= cell < len(_CELLS):
            raise LocalProtocolError(
                "memory_block", "", "store", "CR-35", f"{address} is in no header of slot {slot}'s"
            )
        node.feed(_CELLS[cell](), 0)
        if _CELLS[cell] is Marked and node.record.end == node.record.position + HEADER:
            node.feed(Filled(), 0)

    def _feed_block(self, slot: int, incarnation: int, event: Call, what: str) -> None:
        node = self._block_of(slot, incarnation)
        if node is None:
            raise LocalProtocolError("memory_block", "", "copy_in", "CR-35", f"{what} in no block of slot {slot}'s")
        node.feed(event, 0)

    def _judge_read_head(self, slot: int, incarnation: int, request: CompareAndSwap) -> None:
        """The read head went from one place to another: over one block that is taken, or over any number of others."""
        position, end = request.expected, request.value
        is_taken = any(
            node.record.pool == "read" and node.record.is_of(slot, incarnation) and node.record.position == position
            for node in self.cursors.values()
        )
        while position < end:
            node = self.blocks.pop(position, None)
            if node is None:
                raise LocalProtocolError("memory_block", "", "passed", "CR-37", f"no block begins at {position}")
            node.feed(HeadMoved() if is_taken else HeadSkipped(), 0)
            position = node.record.end
        if position != end:
            raise LocalProtocolError("memory_block", "", "passed", "CR-37", f"{end} is in the middle of a block")
