"""Rally: the smallest machine that keeps the network busy: every ball is hit back, and counted."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Effects, Fsm, Message, Row, Send, Status


class Ball(Message, frozen=True, gc=False):
    """To `to`, from `sender`: hit number `n`."""

    sender: str
    to: str
    n: int


class PlayerStatus(Status):
    """It plays."""

    PLAYING = "playing"


(PLAYING,) = PlayerStatus


class PlayerRecord(msgspec.Struct, frozen=True):
    """How many balls it has hit."""

    id: str
    hits: int = 0
    status: PlayerStatus = PLAYING


def hit(record: PlayerRecord, event: Ball, now_ns: int) -> tuple[PlayerRecord, Effects]:
    back = Send(event.sender, Ball(record.id, event.sender, event.n + 1))
    return replace(record, hits=record.hits + 1), (back,)


PLAYER = Fsm(
    "player",
    record=PlayerRecord,
    states=PlayerStatus,
    initial=PLAYING,
    rows=(Row(Ball, PLAYING, STAY, hit, None, "bench"),),
)
