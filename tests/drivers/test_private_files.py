"""Files that nodes make are their owner's alone, whatever the umask lets others do."""

from __future__ import annotations

import os

import pytest

from statemachines.drivers.lives import keep_number, last_number
from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile
from statemachines.trace.log import FORMAT, Head, TraceLog


@pytest.fixture(autouse=True)
def open_to_all():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return path.stat().st_mode & 0o777


def test_logs_of_traces_what_a_consumer_notes_and_numbers_of_lives(tmp_path):
    TraceLog(tmp_path / "trace", Head(FORMAT, "c1", "c1~1", 1, {}, {})).close()
    ConsumerFile(tmp_path / "got.jsonl")
    keep_number(tmp_path, "c1", 7)
    assert last_number(tmp_path, "c1") == 7
    made = (tmp_path / "trace" / "c1~1.ndjson", tmp_path / "got.jsonl", tmp_path / "c1.life")
    assert [mode(one) for one in made] == [0o600] * 3


def test_a_file_that_is_there_keeps_its_mode(tmp_path):
    """Who wants others to read it makes it first."""
    out = tmp_path / "got.jsonl"
    out.touch(0o644)
    ConsumerFile(out)
    assert mode(out) == 0o644
