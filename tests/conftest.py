"""For all tests: the same examples in every run; and at the end, which rows of the shipped machines were taken.

A row counts when a machine took it in this process or in a worker of pytest-xdist (tests that start processes of their
own, and tests with a planted bug, do not count).  The denominators are exact: the rows of the declaration.
"""

from __future__ import annotations

import functools
import os

import pytest
from hypothesis import settings

from statemachines import catalogue
from statemachines.kernel import Fsm, ProtocolError

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

SHOWN = 12
"""Rows never taken are named where there are no more of them: who runs a few tests need not hear of all others."""

TAKEN: dict[str, set[int]] = {name: set() for name in catalogue.names()}
COMPILED = {id(catalogue.machine(name)._cells): name for name in catalogue.names()}


def refused_row(fsm, record, event):
    """The row by which the table refuses the event (-1: it is not of the alphabet, or the machine has stopped)."""
    for line in fsm.cell(record.status, type(event)):
        if line.kind == "refuse" and (line.when is None or line.when(record, event)):
            return line.number
    return -1


def counting(step, row_of):
    """`Fsm.step` or `Fsm.child_step` that notes the row; a table that is not the shipped one is not counted."""

    @functools.wraps(step)
    def counted(self, record, event, *args):
        name = COMPILED.get(id(self._cells))
        if name is None:
            return step(self, record, event, *args)
        try:
            done = step(self, record, event, *args)
        except ProtocolError:
            TAKEN[name].add(refused_row(self, record, event))
            raise
        TAKEN[name].add(row_of(done))
        return done

    return counted


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite", action="store_true", help="write what tests/interaction/*.txt expects anew, from what happens now"
    )


def pytest_configure(config):
    if config.getoption("--rewrite") and os.environ.get("CI"):
        raise pytest.UsageError("--rewrite would make every interaction expected; where CI is set it is refused")
    Fsm.step = counting(Fsm.step, lambda step: step.row)
    Fsm.child_step = counting(Fsm.child_step, lambda done: done[2].row)


def pytest_sessionfinish(session):
    """A worker hands its rows to whoever started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["rows_taken"] = {name: sorted(rows) for name, rows in TAKEN.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A worker has ended."""
    for name, rows in getattr(node, "workeroutput", {}).get("rows_taken", {}).items():
        TAKEN[name].update(rows)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("rows taken")
    for name, rows in TAKEN.items():
        lines = catalogue.machine(name).lines
        left = [f"{line.number} ({line.clause})" for line in lines if line.number not in rows]
        missing = f"; not: {', '.join(left)}" if 0 < len(left) <= SHOWN else ""
        terminalreporter.write_line(f"{name:12} {len(lines) - len(left):3} of {len(lines):3}{missing}")
