"""Checks: what must hold of the sessions of a run, each of them in words."""

from __future__ import annotations

import numpy as np

from statemachines_reports.persistent_sessions.findings import AGED, CUT, EPOCHS, GAP, ORDER, OWNER, TWICE
from statemachines_reports.persistent_sessions.histories import histories_of
from statemachines_reports.protocol import Check, CheckVerdict, Segment, verdict


def _judged(name: str, claim: str, *, whole: bool = True) -> Check:
    """Of this name among what is wrong with the histories."""

    def judge(segment: Segment) -> CheckVerdict:
        findings = histories_of(segment).findings
        wrong = {one.row: one.detail for one in findings.wrong if one.check == name}
        looked = findings.looked[name]
        return verdict(segment.columns, looked, np.array(sorted(wrong), np.int64), lambda row: wrong[row])

    return Check(name, claim, judge, whole=whole)


CHECKS = (
    _judged(GAP, "what is stored is taken and sent, none left out, none made up (GAP, COMPLETE, STRANGER)"),
    _judged(TWICE, "nothing is committed or sent twice, but as a repetition (TWICE)"),
    _judged(ORDER, "the messages of a writer are sent in the order of their numbers, and behind what their publisher "
            "stored elsewhere before (GAP, ORDER)"),
    _judged(CUT, "below a marker from the database, from it on what was kept, all of it (CUT)", whole=False),
    _judged(OWNER, "who has yielded or is superseded commits and sends nothing; what is sent is committed (SPLIT, "
            "UNCOMMITTED)"),
    _judged(AGED, "what is over when it is committed is not sent, and nothing else is left out for its age (AGED)"),
    _judged(EPOCHS, "epochs go up, numbers have no hole, nothing is stored under an epoch that was raised (PS-D4)"),
)  # fmt: skip
