"""A row that comes in several copies, as the judge of logs sees it (PS-550)."""

from __future__ import annotations

import pytest

from statemachines_reports.persistent_sessions.findings import GAP, ORDER, TWICE, Findings
from statemachines_reports.persistent_sessions.session import SessionHistory
from statemachines_reports.persistent_sessions.session_owner import OwnerHistory
from statemachines_reports.persistent_sessions.written_rows import PutRequest


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (["m1", "m1", "m1", "m2", "m2"], []),
        (["m1", "m1", "m1", "m2"], []),
        (["m1", "m1", "m1", "m1"], [TWICE]),
        (["m1", "m1", "m1", "m2", "m2", "m2"], [TWICE]),
        (["m1", "m2"], [GAP]),
        (["m1", "m1", "m2", "m2"], [GAP]),
        (["m1", "m1", "m2", "m1", "m2"], [ORDER]),
    ],
)
def test_PS_550_each_copy_of_a_row_is_sent_once_and_in_the_order_of_the_rows(sent, found):
    findings = Findings()
    session, owner = SessionHistory("s", findings), OwnerHistory("a~1/1", "a", 0)
    session.load(1, owner, 1)
    written = session.writer("w")
    for number, copies in ((1, 3), (2, 2)):
        put = PutRequest((1, number), f"m{number}", 1, number, stale=False, copies=copies)
        written.ask(put, (1, number - 1))
        session.put(written, put)
        written.store(put, number, number)
    written.take(5, owner.party, owner.token, 1, 1, 2, 0)
    for number in (1, 2):
        written.mark(6, owner.party, owner.token, (1, number))
    for packet, message in enumerate(sent, 1):
        session.send(6 + packet, owner, message, packet, False)
    session.end()
    assert sorted({one.check for one in findings.wrong}) == found
