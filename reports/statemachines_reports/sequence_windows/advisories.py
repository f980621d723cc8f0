"""Advisories: two of a client are a second apart, and they say what was lost (THROTTLE)."""

from __future__ import annotations

import numpy as np

from statemachines_reports.protocol import CheckVerdict, Segment, verdict
from statemachines_reports.sequence_windows.receiver_log import hearing_of, odd_clocks

SECOND_NS = 1_000_000_000


def judge_advisories(segment: Segment) -> CheckVerdict:
    """THROTTLE: each advisory is at least a second after the one before it, by a clock that nothing is wrong with, and
    is the sum of what was lost since; or of all but the loss of that very instant: a client whose second is over hears
    of it afterwards."""
    columns = segment.columns
    odd = odd_clocks(columns)
    advised = columns.rows_of("tell", event=("advisory",))
    lives = {said.row: (said.place.run, said.life, said.told) for said in hearing_of(segment).said if said.told}
    losses = np.array(sorted(lives), np.int64)
    owed: dict[tuple[int, str], int] = {}
    newest: dict[tuple[int, str], tuple[int, int]] = {}
    last: dict[tuple[int, str], int] = {}
    wrong: dict[int, str] = {}
    for row in np.sort(np.concatenate((losses, advised))).tolist():
        if row in lives:
            run, life, told = lives[row]
            owed[run, life] = owed.get((run, life), 0) + told
            newest[run, life] = (int(columns["t_ns"][row]), told)
            continue
        who = (int(columns["run"][row]), columns.text("instance", row).partition("/")[0])
        t_ns, lost = int(columns["t_ns"][row]), int(columns["grant"][row])
        at_ns, last_loss = newest.pop(who, (-1, 0))
        left = last_loss if at_ns == t_ns and lost and lost == owed.get(who, 0) - last_loss else 0
        if lost != owed.get(who, 0) - left:
            wrong[row] = f"is advised of {lost}, and lost {owed.get(who, 0)}"
        elif t_ns - last.get(who, -SECOND_NS) < SECOND_NS and (who[0], columns.text("node", row)) not in odd:
            wrong[row] = f"is advised again after {t_ns - last[who]} ns"
        owed[who], last[who] = left, t_ns
    found = np.array(sorted(wrong), np.int64)
    return verdict(columns, len(advised), found, lambda row: f"{columns.text('instance', row)} {wrong[row]}")
