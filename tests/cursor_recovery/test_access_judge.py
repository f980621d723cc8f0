"""The logs of processes, fed to the machines of cursors and blocks: what is missing in one of them is noticed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.drivers.cursor_recovery import CircularQueue, Instruments
from statemachines.drivers.cursor_recovery.operation_log import OperationLog
from statemachines.testing.cursor_recovery.crash_run import judge_accesses
from statemachines.trace import COLUMNS
from statemachines.trace.log import read_logs

KEY, EVENT = COLUMNS.index("key") - 2, COLUMNS.index("event") - 2


@pytest.fixture
def logs(name, tmp_path):
    log = OperationLog(tmp_path, "shipper")
    with CircularQueue.create(name, capacity=128, instruments=Instruments(observe=log.observe)) as queue:
        for _ in range(3):
            queue.put(b"AAAA")
            assert queue.get() == b"AAAA"
    log.close()
    return queue._segment.queue, read_logs(tmp_path)


def test_what_was_done_rightly_is_fine(logs):
    assert judge_accesses(*logs) == []


@pytest.mark.parametrize(
    ("event", "key"),
    [
        ("store", "data/12"),
        ("store", "data/0"),
        ("copy_in", None),
        ("compare_and_swap", "write_head"),
        ("compare_and_swap", "read/0/state"),
        ("compare_and_swap", "write/0/state"),
    ],
)
def test_an_access_that_was_left_out_is_noticed(logs, event, key):
    queue, (log,) = logs
    place = next(n for n, row in enumerate(log.rows) if row[EVENT] == event and key in (None, row[KEY]))
    (found,) = judge_accesses(queue, [replace(log, rows=[*log.rows[:place], *log.rows[place + 2 :]])])
    assert "refuses" in found.text or "block" in found.text
