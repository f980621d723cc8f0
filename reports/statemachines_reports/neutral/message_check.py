"""Message check: what arrives was sent, as it was sent, where it was sent to, and not more often than that.

Messages are joined by their numbers.  In a simulated run the network says what it loses and what it copies, so there
every message also ends: it arrives, or it is dropped.

Message traffic: the rows of numbered messages, each with the row in which it was sent.

Lost messages: those that were sent, and of which no row says that they arrived, or that the network lost them.

A message goes to a party, or along a route to several nodes.  A node that got an earlier and a later message of a
route gets those between, or they are dropped on the way to it.  A fault of the node in between may have taken it off
the route.  So may one that hits the node before it takes anything again: what came to a node that stands still waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from statemachines.kernel import node_of
from statemachines_reports.columns import STEPS, Columns, Segment
from statemachines_reports.neutral.row_groups import group_by_text, group_rows, is_of_last_time
from statemachines_reports.neutral.run_checks import is_simulated, longest_delay_ns, runs_where
from statemachines_reports.protocol import Check, CheckVerdict, Joint, KeptRows, SealedNumbers, TraceRoles, verdict

NUMBERED: Final = 1 << 40
"""Numbers from here on are those of a node; smaller ones are of those who keep no log."""


class Traffic:
    """The rows of numbered messages, sorted by (run, message), in their order: `rows`; `group`: which message;
    `sent`: the row in which it was sent (-1: nowhere)."""

    def __init__(self, columns: Columns) -> None:
        rows = columns.rows_of("send", "deliver", "drop", "duplicate")
        rows = rows[columns["msg"][rows] >= NUMBERED]
        rows = rows[_order_by_run(columns["run"][rows], columns["msg"][rows])]
        self.columns = columns
        self.rows = rows
        run, msg = columns["run"][rows], columns["msg"][rows]
        begins = np.ones(len(rows), bool)
        begins[1:] = (run[1:] != run[:-1]) | (msg[1:] != msg[:-1])
        self.group = np.cumsum(begins) - 1
        self.groups = int(begins.sum())
        self.is_send = columns.is_one_of("kind", ("send",), rows)
        self.is_deliver = columns.is_one_of("kind", ("deliver",), rows)
        self.first_send = np.full(self.groups, -1)
        sends = np.flatnonzero(self.is_send)[::-1]
        self.first_send[self.group[sends]] = rows[sends]
        self.sent = self.first_send[self.group]

    def count(self, kind: str) -> np.ndarray:
        """How many rows of this kind each message has."""
        return np.bincount(self.group[self.columns.is_one_of("kind", (kind,), self.rows)], minlength=self.groups)


def _order_by_run(run: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Positions sorted by run and value, equal ones in their order.  Runs lie behind one another, and each is sorted by
    itself: that is less work than sorting all."""
    bounds = [0, *(np.flatnonzero(run[1:] != run[:-1]) + 1).tolist(), len(run)]
    return np.concatenate([begin + np.argsort(values[begin:end], kind="stable") for begin, end in pairwise(bounds)])


def find_lost(segment: Segment, traffic: Traffic, runs: list[int]) -> np.ndarray:
    """The sends of these runs that never end."""
    columns = segment.columns
    sends = np.sort(traffic.first_send[traffic.first_send >= 0])
    sends = sends[np.isin(columns["run"][sends], runs)]
    sends = sends[_is_old(segment, sends)]
    if not len(sends):
        return np.asarray(sends)
    order = sends[np.lexsort((sends, columns["peer"][sends], columns["run"][sends]))]
    place = np.full(columns.rows, -1)
    place[order] = np.arange(len(order))
    ended = np.flatnonzero((traffic.sent >= 0) & ~traffic.is_send)
    ended = ended[place[traffic.sent[ended]] >= 0]
    at, node = place[traffic.sent[ended]], _list_nodes(columns, traffic.rows[ended], traffic.is_deliver[ended])
    is_lost = np.ones(len(order), bool)
    is_lost[at] = False
    lost = [order[is_lost]]
    lost.append(_find_holes(segment, order, at[node >= 0], node[node >= 0]))
    found = np.unique(np.concatenate(lost))
    return np.asarray(found[~_is_excused(columns, found)])


def _is_old(segment: Segment, rows: np.ndarray) -> np.ndarray:
    """Whether a message of this row had time to arrive before its run ended."""
    columns = segment.columns
    latest = np.zeros(len(rows), np.int64)
    end = 0
    for run, count in columns.runs():
        end += count
        here = columns["run"][rows] == run
        if here.any():
            last_ns = int(columns["t_ns"][end - count : end].max())
            latest[here] = last_ns - longest_delay_ns(segment.parameters(run))
    return np.asarray(columns["t_ns"][rows] < latest)


def _list_nodes(columns: Columns, rows: np.ndarray, is_deliver: np.ndarray) -> np.ndarray:
    """The node that a message came to, or was dropped on the way to."""
    return np.asarray(np.where(is_deliver, columns["node"][rows], _list_nodes_of_peers(columns, rows)))


def _list_nodes_of_peers(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """The node that the peer of each row is at; -1: at none."""
    nodes = {text: code for code, text in enumerate(columns.texts["node"])}
    of_peer = np.array([*(nodes.get(node_of(text), -1) for text in columns.texts["peer"]), -1])
    return np.asarray(of_peer[columns["peer"][rows]])


def _find_holes(segment: Segment, order: np.ndarray, at: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Sends of a route that did not end at a node, at which ones before them did, and ones after, or none any more."""
    columns = segment.columns
    route = np.zeros(len(order), np.int64)
    route[1:] = np.cumsum(
        (columns["peer"][order][1:] != columns["peer"][order][:-1])
        | (columns["run"][order][1:] != columns["run"][order][:-1])
    )
    nodes = len(columns.texts["node"])
    code = np.unique((route[at] * nodes + node) * len(order) + at)
    pair, place = code // len(order), code % len(order)
    following = np.searchsorted(route, pair // nodes, "right")
    is_last = np.ones(len(pair), bool)
    is_last[:-1] = pair[1:] != pair[:-1]
    following[~is_last] = place[1:][~is_last[:-1]]
    faults, delivered = _Faults(columns), columns.rows_of("deliver")
    found: list[np.ndarray] = []
    for hole in np.flatnonzero(following > place + 1).tolist():
        begin, end = int(place[hole]), int(following[hole])
        until = np.searchsorted(columns["run"], columns["run"][order[begin]], "right") if is_last[hole] else order[end]
        who = int(pair[hole]) % nodes
        until = max(int(until), _row_of_arrival(segment, int(order[end - 1])))
        taken = delivered[columns["node"][delivered] == who]
        next_one = int(np.searchsorted(taken, until))
        last = int(np.searchsorted(columns["run"], columns["run"][order[begin]], "right"))
        until = min(int(taken[next_one]), last) if next_one < len(taken) else last
        if not faults.has_between(who, int(order[begin]), until):
            found.append(order[begin + 1 : end])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _row_of_arrival(segment: Segment, sent: int) -> int:
    """The first row by which what is sent in this one has arrived, at the latest."""
    columns = segment.columns
    run = int(columns["run"][sent])
    end = int(np.searchsorted(columns["run"], run, "right"))
    latest = columns["t_ns"][sent] + longest_delay_ns(segment.parameters(run))
    return sent + int(np.searchsorted(columns["t_ns"][sent:end], latest, "right"))


class _Faults:
    """The rows of faults, by the node that they hit."""

    def __init__(self, columns: Columns) -> None:
        rows = columns.rows_of("fault")
        of_peer = _list_nodes_of_peers(columns, rows)
        self._rows: dict[int, np.ndarray] = {}
        for who in np.unique(np.concatenate((columns["node"][rows], of_peer))).tolist():
            self._rows[who] = rows[(columns["node"][rows] == who) | (of_peer == who)]

    def has_between(self, node: int, begin: int, end: int) -> bool:
        """Whether one hit the node between these rows."""
        rows = self._rows.get(node)
        if rows is None:
            return False
        place = int(np.searchsorted(rows, begin))
        return place < len(rows) and int(rows[place]) < end


def _is_excused(columns: Columns, sends: np.ndarray) -> np.ndarray:
    """Whether a fault hit the node of the receiver later in the run: what had come there, and waited, died with it."""
    faults = _Faults(columns)
    of_peer = _list_nodes_of_peers(columns, sends)
    run = columns["run"]
    ends = {one: int(np.searchsorted(run, one, "right")) for one in np.unique(run[sends]).tolist()}
    return np.array(
        [
            node >= 0 and faults.has_between(node, row, ends[int(run[row])])
            for row, node in zip(sends.tolist(), of_peer.tolist(), strict=True)
        ],
        bool,
    )


EQUAL: Final = ("event", "key", "term", "grant", "first", "last")
"""The columns in which a message arrives as it was sent."""

WORDS: Final = {
    1: "nobody sent it before",
    2: "is sent a second time under its number",
    3: "is not as it was sent",
    4: "comes from another, or to another, than it was sent",
    5: "comes to another node than its own",
    6: "comes more often than it was sent and copied",
    7: "neither arrives nor is dropped",
    8: "is taken in a step, and did not arrive there",
    9: "has no number",
}


def recode(columns: Columns, name: str, other: str) -> np.ndarray:
    """Code of a text in column `name` -> its code in column `other`; -1 where that has no such text."""
    codes = {text: code for code, text in enumerate(columns.texts[other])}
    return np.array([codes.get(text, -1) for text in columns.texts[name]] + [len(columns.texts[other])], np.int64)


def judge_messages(segment: Segment, roles: Iterable[TraceRoles]) -> CheckVerdict:
    """What is wrong with the messages of a segment; `roles` of its protocols."""
    columns = segment.columns
    rows, words = _find_wrong_traffic(segment, roles)
    words |= dict.fromkeys(_find_undelivered(segment).tolist(), 8)
    words |= dict.fromkeys(_find_unnumbered(segment).tolist(), 9)
    return _verdict_on(columns, rows, words)


def _verdict_on(columns: Columns, checked: int, words: dict[int, int]) -> CheckVerdict:
    def describe(row: int) -> str:
        what = f"{columns.text('event', row)} of {columns.text('instance', row)}"
        return f"{columns.text('kind', row)} {what}, message {columns['msg'][row]}: {WORDS[words[row]]}"

    return verdict(columns, checked, np.array(sorted(words), np.int64), describe)


def _find_wrong_traffic(segment: Segment, roles: Iterable[TraceRoles]) -> tuple[int, dict[int, int]]:
    """How many rows are of messages, and what is wrong with which."""
    columns = segment.columns
    traffic = Traffic(columns)
    rows, sent = traffic.rows, traffic.sent
    was_sent = (sent >= 0) & (sent <= rows)
    wrong = np.zeros(len(rows), np.int64)
    differs = np.zeros(len(rows), bool)
    for name in EQUAL:
        differs |= columns[name][rows] != columns[name][sent]
    instance = columns["instance"]
    wrong[differs] = 3
    from_other = recode(columns, "peer", "instance")[columns["peer"][rows]] != instance[sent]
    to_other = recode(columns, "peer", "instance")[columns["peer"][sent]] != instance[rows]
    wrong[traffic.is_deliver & (from_other | to_other)] = 4
    wrong[~traffic.is_deliver & (instance[rows] != instance[sent])] = 4
    wrong[~was_sent] = 1
    again = traffic.is_send & (rows != sent)
    wrong[again] = np.where(instance[rows] == instance[sent], 2, 0)[again]
    wrong[traffic.is_send & ~again] = 0
    wrong[(wrong == 0) & traffic.is_deliver & _is_elsewhere(columns, rows)] = 5
    simulated = runs_where(segment, is_simulated)
    if simulated:
        wrong[(wrong == 0) & np.isin(columns["run"][rows], simulated) & _is_too_often(traffic)] = 6
    words = dict(zip(rows[wrong > 0].tolist(), wrong[wrong > 0].tolist(), strict=True))
    if not any(one.silent_losses for one in roles):
        words |= dict.fromkeys(find_lost(segment, traffic, simulated).tolist(), 7)
    return len(rows), words


def _find_unnumbered(segment: Segment) -> np.ndarray:
    """Messages of simulated runs without a number."""
    columns = segment.columns
    rows = columns.rows_of("send", "deliver", "drop", "duplicate")
    rows = rows[columns["msg"][rows] < 0]
    return np.asarray(rows[np.isin(columns["run"][rows], runs_where(segment, is_simulated))] if len(rows) else rows)


def _is_elsewhere(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """Whether the node of a row is not that of its instance; routes are no nodes."""
    nodes = {text: code for code, text in enumerate(columns.texts["node"])}
    own = [nodes.get(node_of(text), -1) if "~" in text else nodes.get(text, -2) for text in columns.texts["instance"]]
    expected = np.array([*own, -2])[columns["instance"][rows]]
    return np.asarray((expected != -2) & (expected != columns["node"][rows]))


def _is_too_often(traffic: Traffic) -> np.ndarray:
    """Which deliveries are more than the network has made of the message, for the node."""
    node = traffic.columns["node"][traffic.rows]
    is_many = traffic.count("deliver") > traffic.count("duplicate") + 1
    delivers = np.flatnonzero(traffic.is_deliver & is_many[traffic.group])
    order = delivers[np.lexsort((node[delivers], traffic.group[delivers]))]
    same = np.zeros(len(order), bool)
    same[1:] = (node[order][1:] == node[order][:-1]) & (traffic.group[order][1:] == traffic.group[order][:-1])
    place = np.arange(len(order))
    begin = np.maximum.accumulate(np.where(same, 0, place))
    excess = np.zeros(len(node), bool)
    excess[order] = place - begin > traffic.count("duplicate")[traffic.group[order]]
    return excess


def _find_undelivered(segment: Segment) -> np.ndarray:
    """Steps that take a message which did not arrive at their node at that time."""
    columns = segment.columns
    msg, t_ns = columns["msg"], columns["t_ns"]
    rows = columns.rows_of("deliver", *STEPS)
    groups = group_by_text(columns, rows[msg[rows] >= NUMBERED], "node")
    is_deliver = columns.is_one_of("kind", ("deliver",), groups.rows)
    latest = groups.find_latest(is_deliver)
    came = groups.rows[latest]
    is_plain = (latest >= 0) & (msg[came] == msg[groups.rows]) & (t_ns[came] == t_ns[groups.rows])
    steps = groups.rows[~is_plain & ~is_deliver]
    rows = columns.rows_of("deliver")
    rows = np.concatenate((rows[np.isin(msg[rows], msg[steps])], steps))
    groups = group_rows(columns, rows, ("t_ns", "node", "msg", "run"))
    is_deliver = columns.is_one_of("kind", ("deliver",), groups.rows)
    return np.asarray(np.sort(groups.rows[~is_deliver & (groups.find_latest(is_deliver) < 0)]))


def _is_along_route(columns: Columns, traffic: Traffic) -> np.ndarray:
    """Which rows end a message at another node, or for another party, than it was sent to: it went along a route."""
    peer = columns["peer"]
    node_to = _list_nodes_of_peers(columns, traffic.sent)
    other = np.where(
        traffic.is_deliver, columns["node"][traffic.rows] != node_to, peer[traffic.rows] != peer[traffic.sent]
    )
    return np.asarray(other & ~traffic.is_send & (traffic.sent >= 0))


def _is_done(columns: Columns, traffic: Traffic) -> np.ndarray:
    """Which messages went to one node, and arrived there, or were lost, as often as they were sent and copied."""
    ends = traffic.count("deliver") + traffic.count("drop")
    begins = np.append(True, np.diff(traffic.group) > 0)[: len(traffic.group)]
    return np.asarray((traffic.count("send") == 1) & (ends == 1 + traffic.count("duplicate")) & traffic.is_send[begins])


def _keep_traffic(segment: Segment, roles: tuple[TraceRoles, ...]) -> KeptRows:
    """Messages that are not done with; and faults, the latest row, and where there are routes all deliveries: they tell
    whether a message that never ends is lost."""
    columns = segment.columns
    traffic = Traffic(columns)
    latest = np.array([np.argmax(columns["t_ns"])])
    context = np.concatenate((columns.rows_of("fault"), latest))
    if _is_along_route(columns, traffic).any():
        return KeptRows(traffic.rows, np.concatenate((context, columns.rows_of("deliver"))))
    words = _find_wrong_traffic(segment, roles)[1]
    is_left = np.isin(traffic.rows, [*words, *latest.tolist()])
    is_open = ~_is_done(columns, traffic) | (np.bincount(traffic.group[is_left], minlength=traffic.groups) > 0)
    return KeptRows(traffic.rows[is_open[traffic.group]], context)


def _seal_messages(segment: Segment, roles: tuple[TraceRoles, ...]) -> np.ndarray:
    """The numbers of the messages that are done with."""
    columns = segment.columns
    msg = columns["msg"][Traffic(columns).rows]
    return np.setdiff1d(msg, columns["msg"][_keep_traffic(segment, roles).open])


def _is_sealed(segment: Segment, sealed: SealedNumbers) -> bool:
    """No row is of a message that was done with before, and there is no route beside such messages."""
    columns = segment.columns
    traffic = Traffic(columns)
    is_again = sealed.has(columns["msg"][traffic.rows]).any()
    return not is_again and not (len(sealed.first) and _is_along_route(columns, traffic).any())


def _keep_undelivered(segment: Segment) -> KeptRows:
    """Steps whose message has not arrived so far, and deliveries of the last time of a node."""
    columns = segment.columns
    delivers = columns.rows_of("deliver")
    return KeptRows(_find_undelivered(segment), delivers[is_of_last_time(columns, delivers)])


def _judge_one(segment: Segment, find: Callable[[Segment], np.ndarray], code: int) -> CheckVerdict:
    return _verdict_on(segment.columns, 0, dict.fromkeys(find(segment).tolist(), code))


def messages_check(roles: Iterable[TraceRoles]) -> Check:
    """The check, for protocols with these roles."""
    claim = "what arrives was sent before, as it was sent, and no more often; what is sent arrives or is dropped"
    roles = tuple(roles)

    traffic = Joint(
        lambda segment: _verdict_on(segment.columns, *_find_wrong_traffic(segment, roles)),
        partial(_keep_traffic, roles=roles),
        partial(_seal_messages, roles=roles),
        _is_sealed,
    )
    steps = Joint(partial(_judge_one, find=_find_undelivered, code=8), _keep_undelivered)
    joints = traffic, steps, Joint(partial(_judge_one, find=_find_unnumbered, code=9))
    return Check("messages", claim, partial(judge_messages, roles=roles), whole=True, joints=joints)
