"""Lost messages: those that were sent, and of which no row says that they arrived, or that the network lost them.

A message goes to a party, or along a route to several nodes.  A node that got an earlier and a later message of a
route gets those between, or they are dropped on the way to it.  A fault of the node in between may have taken it off
the route.  So may one that hits the node before it takes anything again: what came to a node that stands still waits.
"""

from __future__ import annotations

import numpy as np

from statemachines.kernel import node_of
from statemachines_reports.columns import Columns, Segment
from statemachines_reports.neutral.message_traffic import Traffic
from statemachines_reports.neutral.simulated_run import longest_delay_ns


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
    nodes = {text: code for code, text in enumerate(columns.texts["node"])}
    of_peer = np.array([*(nodes.get(node_of(text), -1) for text in columns.texts["peer"]), -1])
    return np.asarray(np.where(is_deliver, columns["node"][rows], of_peer[columns["peer"][rows]]))


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
        nodes = {text: code for code, text in enumerate(columns.texts["node"])}
        of_peer = np.array([*(nodes.get(node_of(text), -1) for text in columns.texts["peer"]), -1])[
            columns["peer"][rows]
        ]
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
    nodes = {text: code for code, text in enumerate(columns.texts["node"])}
    of_peer = np.array([*(nodes.get(node_of(text), -1) for text in columns.texts["peer"]), -1])[columns["peer"][sends]]
    run = columns["run"]
    ends = {one: int(np.searchsorted(run, one, "right")) for one in np.unique(run[sends]).tolist()}
    return np.array(
        [
            node >= 0 and faults.has_between(node, row, ends[int(run[row])])
            for row, node in zip(sends.tolist(), of_peer.tolist(), strict=True)
        ],
        bool,
    )
