"""ShiViz: a run as a log with vector clocks.  The regular expression for it is the default one of ShiViz:

    (?<host>\\S*) (?<clock>{.*})\\n(?<event>.*)

A host is a node.  A delivery comes after its send; everything else follows the row before on its node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from statemachines_reports.columns import STEPS
from statemachines_reports.export.exported_run import ExportedRun, ExportRow

Clock = dict[str, int]


def write_shiviz(run: ExportedRun) -> Iterator[str]:
    """The log, event by event."""
    clocks: dict[str, Clock] = {}
    sent: dict[int, Clock] = {}
    for row in run.rows:
        if not row.node or row.kind in ("drop", "duplicate", "record"):
            continue
        clock = clocks.setdefault(row.node, {})
        if row.kind == "deliver":
            for node, count in sent.get(row.msg, {}).items():
                clock[node] = max(clock.get(node, 0), count)
        clock[row.node] = clock.get(row.node, 0) + 1
        if row.kind == "send" and row.msg >= 0:
            sent.setdefault(row.msg, dict(clock))
        host = "_".join(row.node.split())
        yield f"{host} {json.dumps(_of_hosts(clock), sort_keys=True)}\n{describe_row(row)}\n"


def _of_hosts(clock: Clock) -> Clock:
    return {"_".join(node.split()): count for node, count in clock.items()}


def describe_row(row: ExportRow) -> str:
    """A row in one line."""
    where = f" {row.instance}" if row.instance else ""
    if row.kind in STEPS:
        change = f"{row.source} -> {row.dest}" if row.source != row.dest else row.source
        text = f"{row.event}{where}: {change}"
    elif row.kind == "send":
        text = f"send {row.event}{where} to {row.peer}"
    elif row.kind == "deliver":
        text = f"deliver {row.event}{where} from {row.peer}"
    else:
        text = f"{row.kind} {row.event}{where}"
    return " ".join(f"{text} {row.key}".split())
