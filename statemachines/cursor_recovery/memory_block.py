"""Memory block: one block of the data area as an observer sees it, from its reservation until a reader has passed it.

It decides nothing: it is fed the accesses to its words (`observers`), and refuses those that cannot be where the death
of an owner is known: a mark before the size, data before the mark, a reader that takes what a living writer is still
writing, or passes what was acknowledged.
"""

from __future__ import annotations

import msgspec

from statemachines.kernel import Call, Fsm, Refuse, Row, Status


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
