"""Values of shared subscriptions: streams end now and then, configurations keep their relations, ids meet."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.kernel import Map
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import END_OF_STREAM, Grant
from statemachines.shared_subscriptions.session import Ack
from statemachines.shared_subscriptions.stream import StreamLink
from statemachines.testing.strategies import of, starting
from statemachines.testing.struct_values import Pool

PROGRAM = """
from hypothesis import find, strategies as st
from statemachines.shared_subscriptions.message import Grant, Ping, Report
print(find(st.from_type(Grant), lambda grant: grant.progress > 100).progress)
print(find(st.builds(Ping, n=st.just(7)), lambda ping: len(ping.reports) == 0).n)
print(type(find(st.builds(list, st.lists(st.from_type(Report), min_size=1)), bool)[0]).__name__)
"""


@pytest.mark.parametrize("module", ["", "strategies", "machine", "shared_subscriptions.group", "system_test"])
def test_any_module_may_be_the_first_that_is_imported(module):
    first = f"import statemachines.testing.{module}, hypothesis.strategies as st\n" if module else ""
    done = subprocess.run([sys.executable, "-c", first + PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(END_OF_STREAM), "7", "Report"]


@given(of(Ack))
def test_a_range_begins_before_it_ends(ack):
    assert 0 <= ack.first <= ack.last


@given(st.from_type(Configuration))
def test_a_configuration_keeps_its_relations(configuration):
    assert configuration.check() is configuration


def test_what_belongs_together_is_aimed_at_together():
    record = BorrowerRecord("me", "g", "#", "leader-1", Configuration(), link=StreamLink("me", "boss", 4711, 815))
    hits = []

    @settings(max_examples=100)
    @given(of(Grant, Pool(record)))
    def count_hits(grant):
        hits.append((grant.borrower, grant.epoch, grant.registration) == ("me", 4711, 815))

    count_hits()
    assert sum(hits) >= 5, "by chance no draw has these three numbers"


@given(starting(BorrowerRecord))
def test_a_record_to_begin_with_has_its_defaults(record):
    assert (record.status, record.link, record.streams) == (BORROWER.initial, None, Map())
