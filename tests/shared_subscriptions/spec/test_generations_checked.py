"""Streams in generations, streams that the store drops, stores that fail: each property can break, and then it does."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from statemachines.kernel import Ignore, Row, in_order, keys_in_order
from statemachines.shared_subscriptions import claim, listing
from statemachines.shared_subscriptions.assignment import ASSIGNMENT, Vanish
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines_spec.bug import change_rows, plant_bug, redeclare, replace_call, wrap_call
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.shared_subscriptions import generations
from statemachines_spec.shared_subscriptions.group_setting import GroupSetting
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, build

PAGING = GroupSetting(script=("A", "rotate", "a"), grants=4, topics=2, page=1, asks_travel=True, consumers=1)


def explored(name, **changes):
    """A small system in this process; `changes` of its setting."""
    about, sizes = SYSTEMS[name]
    setting = replace(GroupSetting(), **{**sizes["small"], **changes})
    return explore(build(name, about, setting), engine="compiled", hashing=False)


def test_every_stream_that_a_script_makes_is_known_beforehand():
    assert generations.streams_of(("a", "b"), ("A", "rotate", "a", "a", "drop")) == (
        "0.0/a", "0.0/b", "0.0/A", "0.1/a",
    )  # fmt: skip


# -- S9 -------------------------------------------------------------------------------------------------------------


def test_a_leader_that_opens_every_generation_breaks_their_order():
    def open_all(record):
        for key, rank in in_order(record.ranks):
            if not rank.open:
                record = replace(record, ranks=record.ranks.set(key, replace(rank, open=True)))
                record = replace(record, live=record.live + rank.live)
                for stream in keys_in_order(rank.streams):
                    if record.streams[stream].progress != END_OF_STREAM:
                        record = replace(record, free=record.free.push(stream))
        return record

    with ExitStack() as stack:
        replace_call(listing, "open_ranks", open_all)(stack)
        result = explored("generations")
    assert result.path.broken == "S9 leader-1"


@pytest.mark.long
def test_a_leader_that_believes_the_last_page_breaks_it_where_a_stream_appears_behind_its_back():
    def wrong(learn):
        return lambda record, event: replace(learn(record, event), generation=event.generation)

    with ExitStack() as stack:
        wrap_call(listing, "learn", wrong)(stack)
        one = build("paging", "", PAGING)
        result = explore(one, engine="compiled", hashing=False)
        assert result.path.broken == "S9 leader-1"
        assert replay(one, result.path).broken == "S9 leader-1"


# -- what has vanished ----------------------------------------------------------------------------------------------


def test_a_leader_that_leaves_a_vanished_stream_with_its_owner_is_found():
    def ignored(row):
        return [Ignore((Vanish,), row.source, row.clause)] if isinstance(row, Row) and row.on is Vanish else [row]

    with ExitStack() as stack:
        redeclare(stack, ASSIGNMENT, ignored)
        result = explored("vanished")
    assert result.path.broken == "vanished"


# -- stores that fail -----------------------------------------------------------------------------------------------


def test_the_store_fails_in_every_way():
    assert explored("store-failures", silences=True, offsets=0, roots=1, lives=1, epochs=1, leaders=1).is_held


def test_a_renewed_claim_that_is_thrown_away_is_not_what_the_store_has():
    with plant_bug("renewed-claim-lost"):
        result = explored("store-failures")
    assert result.path.broken == "S3 claim leader-1"


@pytest.mark.parametrize("why", ["not carried out", "carried out"])
def test_a_leader_that_takes_an_open_outcome_for_a_success_or_a_failure_is_found(why):
    def as_done(record, event, now_ns):
        return claim.keep(record, 1, 1, now_ns)

    def as_not_done(record, event, now_ns):
        return replace(record, trial=None), ()

    with ExitStack() as stack:
        change_rows(LEADER, "recheck_later", do=as_done if why == "not carried out" else as_not_done)(stack)
        result = explored("store-failures")
    assert result.path.broken in ("S3 claim leader-1", "S3 root leader-1")
