"""The statuses of a Borrower; what it does stands in `steps/borrower.txt`."""

from __future__ import annotations

from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerStatus


def test_statuses_have_no_cycle():
    edges = {(a, line.dest) for line in BORROWER.lines if line.dest for a in line.sources}
    order = list(BorrowerStatus)
    assert all(order.index(a) < order.index(b) for a, b in edges)
