"""Message check: what arrives was sent, as it was sent, where it was sent to, and not more often than that.

Messages are joined by their numbers.  In a simulated run the network says what it loses and what it copies, so there
every message also ends: it arrives, or it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

import numpy as np

from statemachines.kernel import node_of
from statemachines_reports.columns import STEPS, Columns, Segment
from statemachines_reports.neutral.lost_messages import find_lost
from statemachines_reports.neutral.message_traffic import NUMBERED, Traffic
from statemachines_reports.neutral.row_groups import group_by_text, group_rows, is_of_last_time
from statemachines_reports.neutral.simulated_run import is_simulated, runs_where
from statemachines_reports.protocol import Check, CheckVerdict, Joint, KeptRows, verdict
from statemachines_reports.sealed_numbers import SealedNumbers
from statemachines_reports.trace_roles import TraceRoles

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
    words |= dict.fromkeys(_find_undelivered(columns).tolist(), 8)
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


def _find_undelivered(columns: Columns) -> np.ndarray:
    """Steps that take a message which did not arrive at their node at that time."""
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
    nodes = {text: code for code, text in enumerate(columns.texts["node"])}
    node_to = np.array([*(nodes.get(node_of(text), -1) for text in columns.texts["peer"]), -1])[peer[traffic.sent]]
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
    return KeptRows(_find_undelivered(columns), delivers[is_of_last_time(columns, delivers)])


def _keep_unnumbered(segment: Segment) -> KeptRows:
    """Each row is judged alone."""
    return KeptRows(segment.columns.rows_of("send")[:0], segment.columns.rows_of("send")[:0])


def messages_check(roles: Iterable[TraceRoles]) -> Check:
    """The check, for protocols with these roles."""
    claim = "what arrives was sent before, as it was sent, and no more often; what is sent arrives or is dropped"
    roles = tuple(roles)

    def judge_traffic(segment: Segment) -> CheckVerdict:
        return _verdict_on(segment.columns, *_find_wrong_traffic(segment, roles))

    def judge_steps(segment: Segment) -> CheckVerdict:
        rows = _find_undelivered(segment.columns)
        return _verdict_on(segment.columns, 0, dict.fromkeys(rows.tolist(), 8))

    traffic = Joint(
        judge_traffic, partial(_keep_traffic, roles=roles), partial(_seal_messages, roles=roles), _is_sealed
    )

    def judge_numbers(segment: Segment) -> CheckVerdict:
        return _verdict_on(segment.columns, 0, dict.fromkeys(_find_unnumbered(segment).tolist(), 9))

    joints = traffic, Joint(judge_steps, _keep_undelivered), Joint(judge_numbers, _keep_unnumbered)
    return Check("messages", claim, partial(judge_messages, roles=roles), whole=True, joints=joints)
