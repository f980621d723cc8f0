"""Losses: what a receiver counts of each of its peers, and the table that shows it (source: "Show loss")."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from statemachines.sequence_windows.inbox_window import InboxJudged
from statemachines.sequence_windows.message import Judged, Verdict

OTHERS = "(others)"
"""In whose name peers are counted beyond the number of those that are told apart."""
PEERS_MAX = 4096
DAY_MS = 24 * 3600 * 1000
HEADS = ("user", "repeat", "rep time", "not sub", "not time", "msg loss", "loss time", "ibx loss", "ibx time")
WIDTHS = (4, 6, 8, 7, 8, 9, 8, 8, 8)


class LossPeer(msgspec.Struct, gc=False):
    """What was counted of one publisher, and when last, in nanoseconds of the wall's clock (0: never).

    `lost` counts messages, and nothing for a loss of unknown size; `unknown`: how many of those there were.
    `strange`: times and chains that were ignored; `refused`: messages that cannot be.
    """

    user: str
    repeat: int = 0
    repeat_ns: int = 0
    not_subscribed: int = 0
    not_subscribed_ns: int = 0
    lost: int = 0
    lost_ns: int = 0
    unknown: int = 0
    inbox_lost: int = 0
    inbox_lost_ns: int = 0
    strange: int = 0
    refused: int = 0

    def count(self, told: Judged, t_ns: int) -> None:
        """What became of messages."""
        if told.verdict is Verdict.REPEAT:
            self.repeat += told.last - told.first + 1
            self.repeat_ns = t_ns
        elif told.verdict is Verdict.NOT_SUBSCRIBED:
            self.not_subscribed += told.last - told.first + 1
            self.not_subscribed_ns = t_ns
        elif told.lost:
            self.lost += told.known_lost
            self.unknown += told.unknown
            self.lost_ns = t_ns

    def count_inbox(self, told: InboxJudged, t_ns: int) -> None:
        """What became of a message to us alone."""
        if told.lost:
            self.inbox_lost += 0 if told.unknown else told.lost
            self.unknown += told.unknown
            self.inbox_lost_ns = t_ns


class Losses:
    """A row for each peer, `PEERS_MAX` of them and one for all the others."""

    def __init__(self) -> None:
        self._peers: dict[str, LossPeer] = {}

    def of(self, user: str) -> LossPeer:
        """The row of the peer; it is there from now on."""
        peer = self._peers.get(user)
        if peer is None:
            if len(self._peers) >= PEERS_MAX:
                return self._peers.setdefault(OTHERS, LossPeer(OTHERS))
            peer = self._peers[user] = LossPeer(user)
        return peer

    def rows(self) -> tuple[LossPeer, ...]:
        """All rows, by the ids of the peers."""
        return sort_by_id(self._peers.values())


def sort_by_id(peers: Iterable[LossPeer]) -> tuple[LossPeer, ...]:
    """`B.1`, `D.3`, `C.4`: by the number behind the name, then by the name; those without a number come last."""

    def place(peer: LossPeer) -> tuple[bool, int, str]:
        number = peer.user.rpartition(".")[2]
        numbered = number.isascii() and number.isdigit() and len(number) < 20
        return not numbered, int(number) if numbered else 0, peer.user

    return tuple(sorted(peers, key=place))


def time_text(t_ns: int, offset_s: int = 0) -> str:
    """`20:42:24.431`, `offset_s` east of UTC; "" for 0."""
    if not t_ns:
        return ""
    ms = (t_ns // 1_000_000 + offset_s * 1000) % DAY_MS
    seconds, ms = divmod(ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{ms:03}"


def cells_of(peer: LossPeer, offset_s: int = 0) -> tuple[str, ...]:
    """The nine cells of a row."""
    counts = (
        (peer.repeat, peer.repeat_ns),
        (peer.not_subscribed, peer.not_subscribed_ns),
        (peer.lost, peer.lost_ns),
        (peer.inbox_lost, peer.inbox_lost_ns),
    )
    return (peer.user, *(cell for count, t_ns in counts for cell in (str(count), time_text(t_ns, offset_s))))


def table(peers: Iterable[LossPeer], offset_s: int = 0) -> str:
    """The source's table: a head, a rule, a line a peer in the order of their ids."""
    rows = [cells_of(peer, offset_s) for peer in sort_by_id(peers)]
    widths = [max(width, *(len(row[n]) for row in (HEADS, *rows))) for n, width in enumerate(WIDTHS)]
    head = " | ".join(_centred(cell, width) for cell, width in zip(HEADS, widths, strict=True)).rstrip()
    rule = "+".join("-" * (width + (1 if n in (0, len(widths) - 1) else 2)) for n, width in enumerate(widths))
    lines = [" | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join((head, rule, *lines))


def _centred(text: str, width: int) -> str:
    """In the middle, or a place to the right of it."""
    return (" " * ((width - len(text) + 1) // 2) + text).ljust(width)
