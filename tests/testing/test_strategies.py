"""Strategies by type: valid by construction, colliding, aimed, hostile; and known to Hypothesis without any import."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated

import msgspec
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from statemachines import registry
from statemachines.catalogue import machine, names
from statemachines.kernel import Fifo, Map, Message, Node, TimerFired
from statemachines.kernel.pmap import dec_hook, enc_hook
from statemachines.missed_samples.message import Sample
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import END_OF_STREAM, Grant, Ping, UpdateProgress
from statemachines.shared_subscriptions.session import Ack
from statemachines.shared_subscriptions.stream import Link
from statemachines.testing.pool import Pool
from statemachines.testing.strategies import events, of, register, shipped, starting

FEW = settings(max_examples=15)


@pytest.mark.parametrize("kind", shipped(), ids=lambda kind: f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}")
def test_every_type_has_a_strategy_whose_values_survive_being_written_down(kind):
    @FEW
    @given(st.from_type(kind))
    def check(value):
        assert type(value) is kind
        written = msgspec.json.encode(value, enc_hook=enc_hook)
        assert msgspec.json.decode(written, type=kind, dec_hook=dec_hook) == value

    check()


PROGRAM = """
from hypothesis import find, settings, strategies as st
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")
from statemachines.shared_subscriptions.message import Grant, Ping, Report
print(find(st.from_type(Grant), lambda grant: grant.progress > 100).progress)
print(find(st.builds(Ping, n=st.just(7)), lambda ping: len(ping.reports) == 0).n)
print(type(find(st.builds(list, st.lists(st.from_type(Report), min_size=1)), bool)[0]).__name__)
"""


def test_hypothesis_knows_the_types_of_an_installed_package():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(END_OF_STREAM), "7", "Report"]


@pytest.mark.parametrize("module", ["strategies", "machine", "shared_subscriptions.group", "closed"])
def test_any_module_may_be_the_first_that_is_imported(module):
    program = f"import statemachines.testing.{module}, hypothesis.strategies as st\n" + PROGRAM
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(END_OF_STREAM), "7", "Report"]


def test_nothing_that_a_protocol_declares_is_left_out():
    """Every message, request and record, also of modules that no table imports."""
    known = set(shipped())
    for protocol in registry.protocols():
        package = import_module(f"statemachines.{protocol.name}")
        for found in iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{found.name}")
            declared = {
                value
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
            }
            assert declared <= known, module.__name__
    for name in names():
        assert {machine(name).record_type, *machine(name).alphabet} <= known, name


@given(of(Ack), of(Sample))
def test_a_range_begins_before_it_ends(ack, sample):
    assert 0 <= ack.first <= ack.last
    assert 0 <= sample.first <= sample.last


@given(st.from_type(Configuration))
def test_a_configuration_keeps_its_relations(configuration):
    assert configuration.check() is configuration


def test_numbers_collide_and_streams_end_now_and_then():
    both = st.tuples(of(UpdateProgress), of(UpdateProgress))
    find(both, lambda two: two[0].grant == two[1].grant and two[0].stream == two[1].stream != "0.0/a")
    find(of(UpdateProgress), lambda one: one.progress == END_OF_STREAM)
    with pytest.raises(NoSuchExample):
        find(of(UpdateProgress), lambda one: one.grant < 0 or one.grant > 100, settings=settings(max_examples=500))


def test_what_belongs_together_is_aimed_at_together():
    record = BorrowerRecord("me", "g", "#", "leader-1", Configuration(), link=Link("me", "boss", 4711, 815))
    hits = []

    @settings(max_examples=100)
    @given(of(Grant, Pool(record)))
    def count_hits(grant):
        hits.append((grant.borrower, grant.epoch, grant.registration) == ("me", 4711, 815))

    count_hits()
    assert sum(hits) > 10


def test_a_hostile_value_is_wrong_in_every_way_that_its_type_allows():
    find(of(Ack, hostile=True), lambda ack: ack.first > ack.last)
    find(of(Grant, hostile=True), lambda grant: grant.epoch == END_OF_STREAM and grant.stream == "")
    find(of(Ping, hostile=True), lambda ping: any(report.progress == END_OF_STREAM for report in ping.reports))


class Odd(msgspec.Struct, frozen=True):
    size: Annotated[int, msgspec.Meta(ge=1_000, lt=1_010)]
    queue: Fifo
    table: Map[int, str] = Map()


def test_a_type_of_ones_own():
    register(Odd)
    odd = find(st.from_type(Odd), lambda odd: len(odd.queue) == 2 and len(odd.table) == 1)
    assert 1_000 <= odd.size < 1_010
    assert list(odd.queue) == ["0.0/a", "0.0/a"]


class Strange(Message, frozen=True):
    when: dict[str, int]


def test_a_field_without_a_strategy_is_named():
    with pytest.raises(TypeError, match="no strategy for the field 'when'"):
        find(of(Strange), bool)


@given(st.data())
def test_events_are_those_of_the_alphabet(data):
    event = data.draw(events(BORROWER, leave_out=(TimerFired,)))
    assert type(event) in BORROWER.alphabet
    assert not isinstance(event, TimerFired)


@given(starting(BorrowerRecord))
def test_a_record_to_begin_with_has_its_defaults(record):
    assert (record.status, record.link, record.streams) == (BORROWER.initial, None, Map())


@settings(max_examples=50)
@given(of(BorrowerRecord))
def test_any_record_can_be_kept_and_restored(record):
    node = Node(BORROWER, record, name="n", now_ns=0)
    assert Node.restore(BORROWER, node.snapshot()).record == record
