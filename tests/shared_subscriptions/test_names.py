"""Names of groups, topics and filters, and the keys of records (clauses SS-213, SS-214)."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statemachines.kernel import ConfigurationError, RemoteProtocolError
from statemachines.shared_subscriptions import names
from statemachines.shared_subscriptions.agent_record import SharedFilter
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import (
    GroupStore,
    Scan,
    StoredRecord,
)
from statemachines.shared_subscriptions.handler import Agent
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.shared_subscriptions.registry import Registry
from statemachines.shared_subscriptions.stream_store import parse_filter
from statemachines.shared_subscriptions.subscription import Subscription

C = Configuration().check()

PARTS = ("a", "g", "/", ":", ".", "1", "2", "#", "+", "%", "$", "~", ":progress:", ":claim", "/1.1/", "é", "\U0001f600")
TEXTS = st.lists(st.sampled_from(PARTS), max_size=5).map("".join)
NAMES = st.one_of(st.sampled_from(("claim", "root", "properties")), TEXTS.map("progress:{}".format))
RECORDS = st.tuples(TEXTS, TEXTS, NAMES)


@settings(max_examples=600, deadline=None)
@given(RECORDS, RECORDS)
@example(("g", "a:progress:x", "claim"), ("g", "a", "progress:x:claim"))
@example(("g", "t/#", "claim"), ("g/t", "#", "claim"))
@example(("g/1", "a", "root"), ("g", "1/a", "root"))
def test_SS_213_different_records_have_different_keys(one, other):
    assert (names.record_key(*one) == names.record_key(*other)) == (one == other)
    assert names.record_name(names.record_key(*one)) == names.RecordName(*one)


@settings(max_examples=400, deadline=None)
@given(st.tuples(TEXTS, TEXTS), RECORDS)
@example(("g", "a"), ("g", "a:progress:x", "properties"))
def test_SS_213_the_progress_of_a_group_is_found_without_that_of_another(group, record):
    state = {names.record_key(*record): StoredRecord(1, 1)}
    found = GroupStore().apply(state, Scan(1, names.record_key(*group, "progress:"), "", 9), 0)[1][0].records
    assert bool(found) == (group == record[:2] and record[2].startswith("progress:"))


@pytest.mark.parametrize("text", ["", "/", "g/#:claim", "/1.1", "/1/g/#:claim", "/1.2/g/#:claim", "/1.x/g/#:c", "/²./"])
def test_SS_213_what_is_no_key_says_nothing(text):
    assert names.record_name(text) == names.NOTHING
    assert names.record_name(text).stream == ""


WRONG_GROUPS = ["", "g/t", "g+", "#", "g" * 257, "é" * 129, "g\n", "g\x1b[2J", "g\x85", "g\0", "\ud800"]


@pytest.mark.parametrize("group", WRONG_GROUPS)
def test_SS_214_no_group_can_be_called_so_on_any_path(group):
    with pytest.raises(ConfigurationError):
        names.check_group(group)
    with pytest.raises(ConfigurationError):
        parse_filter(f"$shared/{group}/" + ("a" if "/" not in group else "a\0"))
    with pytest.raises(ConfigurationError):
        Agent("c1~1", "leader-1", C).subscribe(SharedFilter(group, "#"), 0)
    with pytest.raises(ConfigurationError):
        Subscription("c1~1", group, "#", "leader-1", C)
    registry = Registry("leader-1~1", C)
    with pytest.raises(RemoteProtocolError):
        registry.receive("c1~1/1", "leader-1", LeaderWanted("c1~1/1", group, "#"), 0)
    assert not registry.nodes


@pytest.mark.parametrize("group", ["g", "$queue", "g" * 256, "é" * 128, "a:progress:x", "%2F", " "])
def test_SS_214_a_group_may_be_called_so(group):
    names.check_group(group)
    registry = Registry("leader-1~1", C)
    assert registry.receive("c1~1/1", "leader-1", LeaderWanted("c1~1/1", group, "#"), 0)
    assert len(registry.nodes) == 1
