"""Traces of MQTT connections: a client id has one connection at a node (docs/mqtt.md)."""

from __future__ import annotations

import numpy as np

from statemachines_reports.columns import STEPS
from statemachines_reports.protocol import Check, CheckVerdict, ReportProtocol, Segment, TraceRoles, verdict

MACHINE = "mqtt_connections/mqtt_connection"


def judge_owners(segment: Segment) -> CheckVerdict:
    """A connection is accepted only when the one before it, of the same client id, is closed (ONEOWNER)."""
    columns = segment.columns
    rows = columns.rows_of(*STEPS, machine=(MACHINE,))
    opens = columns.is_one_of("source", ("opening",), rows) & columns.is_one_of("dest", ("connected",), rows)
    ends = columns.is_one_of("source", ("connected",), rows) & columns.is_one_of("dest", ("closed",), rows)
    owners: dict[tuple[int, str, str], str] = {}
    places: dict[tuple[int, str], tuple[int, str, str]] = {}
    wrong = []
    for row, is_open in zip(rows[opens | ends].tolist(), opens[opens | ends].tolist(), strict=True):
        party, run = columns.text("instance", row), int(columns["run"][row])
        life = party.partition("/")[0]
        if is_open:
            place = (run, life, columns.text("key", row))
            if place in owners:
                wrong.append(row)
            owners[place], places[run, party] = party, place
        elif (closed := places.pop((run, party), None)) is not None and owners.get(closed) == party:
            del owners[closed]
    count = int(opens.sum())
    return verdict(columns, count, np.array(wrong, np.int64), lambda row: f"{columns.text('key', row)} has two")


REPORTS = ReportProtocol(
    checks=(Check("one-owner", "a client id has at most one accepted connection at a node", judge_owners),),
    roles=TraceRoles(
        # what waited for the connection, all at once
        repeats=("publish_message", "pubrel_message", "delivery_ready", "release_ready"),
        unstepped=("ping", "options_wanted"),  # the client sends them before its machine steps, or beside it
    ),
)
