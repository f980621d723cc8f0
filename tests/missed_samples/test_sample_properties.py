"""The observers of the properties: of each one run that breaks it, and one near it that does not.

Publisher, cache and subscriber of missed-samples recovery, clause by clause (spec/missed_samples/clauses.md).
"""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sample_words import ask
from samples_world import KEY

from statemachines import kernel
from statemachines.missed_samples import keys, properties
from statemachines.missed_samples.cache import CACHE, CacheRecord, LetGo, NotKept, Published
from statemachines.missed_samples.message import PARTLY, DeliverUnnumbered, Heartbeat, Query, Sample, TurnedAway
from statemachines.missed_samples.properties import (
    PROPERTIES,
    AskedNumbers,
    ObservedCache,
    ObservedSource,
    ObservedStrangers,
    SettledNumbers,
)
from statemachines.missed_samples.publisher import PUBLISHER, Beats, Declare, Publish, PublisherRecord
from statemachines.missed_samples.recovery import MS, make_recovery
from statemachines.missed_samples.selector import Malformed, parse
from statemachines.missed_samples.serial_number import unwrap_number, wrap_number
from statemachines.missed_samples.subscriber_record import History

RECOVERY = make_recovery(retries=1, windows=1, jump=9)
RECORD = CacheRecord(history=2, places=2)


def names(broken):
    assert all(one.detail for one in broken)
    return [one.name for one in broken]


def arrive(seen, *numbers, recovery=RECOVERY):
    for number in numbers:
        seen = seen.observe_samples(number, number, recovery)
    return seen


def ask_of_sample_properties(seen, first, n=1, recovery=RECOVERY, **given):
    seen, broken = seen.observe_query(AskedNumbers(n, first, **{"last": first + 9, **given}), recovery)
    assert broken == ()
    return seen


def gap():
    """0 is delivered, 2 has come, and 1 was asked for."""
    seen, broken = arrive(ObservedSource(), 0).observe_delivered(0, 0)
    assert broken == ()
    return ask_of_sample_properties(arrive(seen, 2), 1)


# -- what is told ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "breaks"),
    [
        (((4, 5), (6, 9)), []),
        (((4, 5), (5, 5)), ["ONCE"]),
        (((4, 5), (3, 5)), ["ORDER"]),
        (((4, 5), (7, 7)), ["REPORT"]),
    ],
)
def test_ORDER_ONCE_REPORT_numbers_follow_one_another(told, breaks):
    settled, found = SettledNumbers(), []
    for first, last in told:
        settled, broken = settled.observe(first, last)
        found += names(broken)
    assert found == breaks
    source, seen = [], arrive(ObservedSource(), *range(4, 10))
    for first, last in told:
        seen, broken = seen.observe_delivered(first, last)
        source += names(broken)
    assert source == breaks, "of a source that is known it is the same"


def test_ORDER_a_publisher_gives_a_number_again():
    assert names(properties.judge_publication(3, 2)) == []
    assert names(properties.judge_publication(3, 3)) == ["ORDER"]


def test_INVENTED_only_what_has_come_is_delivered_and_only_what_exists_is_reported():
    seen = gap().observe_query_end(1, 2, RECOVERY)
    assert names(seen.observe_missed(1, 1, RECOVERY)[1]) == []
    assert names(seen.observe_delivered(1, 1)[1]) == ["INVENTED"]
    settled = arrive(seen, 1).observe_delivered(1, 2)[0]
    assert names(settled.observe_missed(3, 3, RECOVERY)[1]) == ["INVENTED"]
    assert set(names(ObservedSource().observe_delivered(0, 0)[1])) == {"INVENTED"}, "nothing is known of its source"


def test_INVENTED_a_sample_without_source_is_passed_on_once():
    seen, broken = ObservedStrangers().observe_unnumbered().observe_told(DeliverUnnumbered())
    assert names(broken + seen.judge_silence()) == []
    assert names(seen.observe_told(DeliverUnnumbered())[1]) == ["INVENTED"]
    assert names(seen.observe_unnumbered().judge_silence()) == ["INVENTED"]


def test_HISTORY_nothing_is_told_before_the_first_query_is_over():
    seen = arrive(ObservedSource(waits=True), 5, 4)
    assert names(seen.observe_delivered(4, 5)[1]) == ["HISTORY"]
    assert names(replace(seen, waits=False).observe_delivered(4, 5)[1]) == []


def test_NOGAP_what_has_come_or_is_in_a_cache_is_not_given_up():
    seen = gap().observe_query_end(1, 3, RECOVERY)
    assert names(seen.observe_missed(1, 2, RECOVERY)[1]) == ["NOGAP"]
    assert names(seen.observe_missed(1, 1, RECOVERY)[1]) == []
    assert names(seen.judge_owed({0, 2})) == []
    assert names(seen.judge_owed({1})) == ["NOGAP"]
    assert names(seen.judge_reached(0)) == []
    assert names(seen.judge_reached(1)) == ["NOGAP"]


def test_HASTY_a_number_is_given_up_after_an_answer_or_after_enough_queries():
    seen = gap()
    assert names(seen.observe_query_end(1, 1, RECOVERY).observe_missed(1, 1, RECOVERY)[1]) == []
    for n in (1, 2):
        assert names(seen.observe_missed(1, 1, RECOVERY)[1]) == ["HASTY"]
        seen = seen.observe_query_end(n, 0, RECOVERY)
        assert seen.attempts == n
        assert seen.pause_ms(RECOVERY) == n * RECOVERY.pacing.backoff_ms
        seen = ask_of_sample_properties(seen, 1, n + 1)
    assert names(seen.observe_missed(1, 1, RECOVERY)[1]) == []


def test_HASTY_where_too_much_is_held_the_first_hole_is_given_up():
    little = replace(RECOVERY, pending=1)
    seen = gap()
    assert names(seen.observe_missed(1, 1, little)[1]) == ["HASTY"]
    assert names(arrive(seen, 4).observe_missed(1, 1, little)[1]) == []


def test_HASTY_silence_counts_for_nothing_until_the_deadline():
    seen = gap().observe_timeout(RECOVERY)
    assert seen.attempts == 0
    again, broken = seen.observe_query(AskedNumbers(2, 1, 9, again=True), RECOVERY)
    assert broken == ()
    assert again.observe_query_end(1, PARTLY, RECOVERY) == again
    assert again.observe_query_end(1, 0, RECOVERY).attempts == again.observe_query_end(2, 0, RECOVERY).attempts == 1
    assert names(seen.observe_missed(1, 1, RECOVERY)[1]) == ["HASTY"]
    assert names(seen.observe_overdue(1).observe_missed(1, 1, RECOVERY)[1]) == []


def test_WHOLE_nothing_is_missed():
    assert names(properties.judge_whole(False)) == []
    assert names(properties.judge_whole(True)) == ["WHOLE"]


# -- what is asked --------------------------------------------------------------------------------------------------


def test_QUIET_and_ASKED_a_query_is_for_the_first_number_that_is_missing():
    seen = arrive(ObservedSource(), 0).observe_delivered(0, 0)[0]
    asked = AskedNumbers(1, 1, 9)
    assert names(seen.observe_query(asked, RECOVERY)[1]) == ["QUIET"]
    assert names(seen.observe_query(replace(asked, last=0, periodic=True), RECOVERY)[1]) == []
    seen = arrive(seen, 3)
    assert names(seen.observe_query(asked, RECOVERY)[1]) == []
    assert names(seen.observe_query(replace(asked, first=2), RECOVERY)[1]) == ["ASKED"]


def test_ASKED_windows_do_not_meet_and_are_no_more_than_may_be():
    two = replace(RECOVERY, pacing=replace(RECOVERY.pacing, windows=2))
    seen = ask_of_sample_properties(
        arrive(arrive(ObservedSource(), 0).observe_delivered(0, 0)[0], 8), 1, last=3, recovery=two
    )
    for first, breaks in ((4, []), (3, ["ASKED"]), (8, ["ASKED"])):
        assert names(seen.observe_query(AskedNumbers(2, first, first + 2), two)[1]) == breaks
    assert names(seen.observe_query(AskedNumbers(2, 4, 6), RECOVERY)[1]) == ["ASKED"]


def test_ASKED_somebody_is_asked_for_what_is_missing_unless_it_rests():
    seen = gap()
    assert names(seen.judge_idle(rests=False)) == []
    seen = seen.observe_query_end(1, 0, RECOVERY)
    assert names(seen.judge_idle(rests=True)) == []
    assert names(seen.judge_idle(rests=False)) == ["ASKED"]


def test_ASKED_who_is_met_by_its_token_is_asked():
    met = ObservedSource()
    assert names(met.judge_token(True, True, RECOVERY)) == []
    assert names(met.judge_token(True, False, RECOVERY)) == ["ASKED"]
    assert names(met.judge_token(False, False, RECOVERY)) == []
    looks = AskedNumbers(1, 0, -1, 2)
    assert names(replace(met, alive=True, new=True).observe_query(looks, RECOVERY)[1]) == []
    assert names(met.observe_query(looks, RECOVERY)[1]) == ["QUIET"]


def test_QUIET_and_ASKED_history_is_asked_for_as_it_is_wanted():
    assert names(properties.judge_unwanted(True)) == []
    assert names(properties.judge_unwanted(False)) == ["QUIET"]
    assert names(properties.judge_first_query(Query("*", 2, 0, 3), History(3), 1)) == []
    for query in (Query("*", 1, 0, 3), Query("*", 2, 0, 1), Query("*", 2, 0, 3, 9)):
        assert names(properties.judge_first_query(query, History(3), 1)) == ["ASKED"]


# -- when a step is over ----------------------------------------------------------------------------------------------


def test_BOUND_no_more_is_held_than_may_be():
    seen, little = arrive(gap(), 4), replace(RECOVERY, pending=1, history_limit=3)
    assert names(seen.judge_step(RECOVERY)) == []
    assert names(seen.judge_step(little)) == ["BOUND"]
    assert names(replace(seen, waits=True).judge_step(little)) == []
    for count, queues, breaks in ((2, 2, []), (3, 2, ["BOUND"]), (2, 3, ["BOUND"])):
        assert names(properties.judge_room(count, queues, RECORD)) == breaks


def test_ISOLATION_what_has_come_does_not_wait():
    seen = arrive(gap(), 1)
    assert names(seen.judge_step(RECOVERY)) == ["ISOLATION"]
    assert names(seen.observe_delivered(1, 2)[0].judge_step(RECOVERY)) == []


def test_PROMPT_what_is_convicted_does_not_wait():
    seen = gap()
    assert names(seen.judge_convicted(RECOVERY)) == []
    seen = seen.observe_query_end(1, 2, RECOVERY)
    assert names(seen.judge_convicted(RECOVERY)) == ["PROMPT"]
    seen = seen.observe_missed(1, 1, RECOVERY)[0].observe_delivered(2, 2)[0]
    assert names(seen.judge_convicted(RECOVERY)) == []


def test_COUNT_what_is_not_new_is_counted():
    seen = arrive(gap(), 0, 2, 1, 99)
    assert names(seen.judge_count(3)) == [], "two came again, and one is too far ahead to be believed"
    assert names(seen.judge_count(2)) == ["COUNT"]


def test_a_number_that_is_far_ahead_is_believed_when_a_second_follows():
    seen = arrive(gap(), 99)
    assert (seen.top, seen.doubt) == (3, 99)
    assert arrive(seen, 100).top == 101
    assert seen.observe_heartbeat(99, RECOVERY).top == 100
    assert arrive(seen, 1, 99).top == 3, "what is new in between ends the doubt"


def test_FORGOTTEN_the_silent_and_nobody_else():
    seen = arrive(ObservedSource(), 0).observe_delivered(0, 0)[0]
    for one, silent, kept, breaks in (
        (seen, True, False, []),
        (seen, True, True, ["FORGOTTEN"]),
        (seen, False, False, ["FORGOTTEN"]),
        (seen, False, True, []),
        (replace(seen, alive=True), True, False, ["FORGOTTEN"]),
        (gap(), True, False, ["FORGOTTEN"]),
    ):
        assert names(one.judge_forgotten(silent, kept)) == breaks
    assert names(properties.judge_memory(0)) == []
    assert names(properties.judge_memory(1)) == ["FORGOTTEN"]


# -- strangers ------------------------------------------------------------------------------------------------------


def test_PLACES_a_stranger_is_turned_away_aloud_and_counted():
    seen = ObservedStrangers().observe_stranger(Sample("q", 3, 4), 3)
    assert names(seen.judge_silence()) == ["PLACES"]
    assert names(seen.observe_told(TurnedAway("q", 3, 4))[1]) == ["PLACES"], "numbers of the wire"
    seen, broken = seen.observe_told(TurnedAway("q", 11, 12))
    assert names(broken + seen.judge_silence()) == []
    seen = seen.observe_stranger(Heartbeat("q", 9), 3)
    assert names(seen.judge_silence() + seen.judge_count(3)) == []
    assert names(seen.judge_count(2)) == ["COUNT"]


def test_PLACES_those_that_were_met_are_kept():
    assert names(properties.judge_places(2, 2)) == []
    assert names(properties.judge_places(2, 1)) == ["PLACES"]
    assert names(properties.judge_places(2, 2, {"p", "q"})) == ["PLACES"]


# -- caches ---------------------------------------------------------------------------------------------------------


def cache():
    """Of two queues that there may be both are taken: "p" has 2 and 4, "q" has 0."""
    seen = ObservedCache()
    for source, number in (("p", 1), ("p", 4), ("p", 2), ("q", 0)):
        seen = seen.observe_published(Published("k", source, number, number), number, RECORD)
    return seen


def test_REPLIES_the_highest_that_ever_came_are_answered_with():
    queue = cache().queues["p", "k"]
    assert queue.list_answer(0, None, 0) == [2, 4]
    assert queue.list_answer(3, None, 0) == [4]
    assert queue.list_answer(0, 3, 0) == [2]
    assert queue.list_answer(0, 9, 1) == [4]
    assert names(cache().judge_contents(("p", "k"), 2, 2, 4)) == []
    for said in ((2, 1, 4), (1, 4, 4), (3, 2, 4)):
        assert names(cache().judge_contents(("p", "k"), *said)) == ["REPLIES"]
    assert names(properties.judge_replies([("p", 2), ("p", 4)], [("p", 2), ("p", 4)])) == []
    assert names(properties.judge_replies([("p", 4), ("p", 2)], [("p", 2), ("p", 4)])) == ["REPLIES"]


def test_QUEUES_who_finds_no_place_is_turned_away_and_the_silent_go_later():
    crowded = cache().observe_published(Published("k", "r", 3, 4), 3, RECORD)
    assert names(crowded.judge_silence()) == ["QUEUES"]
    assert names(crowded.judge_count(2)) == []
    assert names(crowded.judge_count(1)) == ["COUNT"]
    assert names(crowded.judge_waiting(True)) == names(cache().judge_waiting(False)) == []
    assert names(crowded.judge_waiting(False)) == ["QUEUES"]
    assert names(crowded.observe_told(LetGo("k", "p"))[1]) == ["QUEUES"]
    crowded, broken = crowded.observe_told(NotKept("k", "r", 3, 4))
    assert names(broken + crowded.judge_silence()) == []
    heard = crowded.observe_published(Published("k", "q", 1, 1), 1, RECORD).observe_retention()
    assert heard.owed == (LetGo("k", "p"),)
    assert names(heard.judge_queues({("q", "k")})) == []
    assert names(heard.judge_queues({("p", "k"), ("q", "k")})) == ["QUEUES"]
    assert cache().observe_retention().owed == (), "nobody was crowded"


# -- in the end -----------------------------------------------------------------------------------------------------


def test_LIVE_a_hole_is_settled_in_time():
    longest = 2 * RECOVERY.deadline_ms * MS
    assert names(properties.judge_hole(longest, RECOVERY)) == []
    assert names(properties.judge_hole(longest + 1, RECOVERY)) == ["LIVE"]
    assert names(gap().judge_settled()) == ["LIVE"]
    assert names(arrive(gap(), 1).observe_delivered(1, 2)[0].judge_settled()) == []


def test_TAIL_all_that_was_sent_is_heard_of():
    seen = arrive(ObservedSource(), 0).observe_delivered(0, 0)[0]
    assert names(seen.judge_tail(1)) == []
    assert names(seen.judge_tail(2)) == ["TAIL"]
    assert names(ObservedSource().judge_tail(2)) == [], "nothing is known of it"


def test_what_is_settled_makes_no_difference():
    """Two lives that differ in what is behind them are one state of a closed system."""
    one = gap().observe_query_end(1, 0, RECOVERY)
    one = arrive(one, 1).observe_delivered(1, 2)[0]
    other = arrive(arrive(ObservedSource(), 0, 1, 2), 3).observe_delivered(0, 2)[0]
    assert arrive(one, 3) == other


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_has_a_test_here(name):
    assert [one for one in globals() if name in one.split("_")]


# -- publisher ------------------------------------------------------------------------------------------------------


def publisher(**given):
    node = kernel.Node(PUBLISHER, PublisherRecord("p", KEY, **given), name="p", now_ns=0, check=True)
    node.feed(Declare(), 0)
    return node


def test_ALONE_a_publisher_hears_nobody_so_it_is_the_same_for_any_number_of_subscribers():
    """Nor does it send to anybody in particular: what goes out goes to its key."""
    assert PUBLISHER.alphabet
    assert not [event for event in PUBLISHER.alphabet if issubclass(event, (kernel.Message, kernel.Answer))]
    node = publisher(beats=Beats.PERIODIC, period_ms=100)
    sent = [*node.feed(Publish(), 0), *node.fire(100 * MS)]
    assert {one.to for one in sent if isinstance(one, kernel.Send)} == {KEY}


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(0, 5), st.sampled_from([64, 3]))
def test_MS_36_under_one_id_no_number_is_repeated(counts, more, width):
    first = publisher(width=width)
    for count in counts:
        first.feed(Publish(count), 0)
    second = publisher(width=width, next=first.record.next)
    for _ in range(more):
        (kept, sent) = second.feed(Publish(), 0)
        assert kept.event.first >= sum(counts)
        assert sent.message.first == wrap_number(kept.event.first, width)


def test_MS_35_nothing_is_published_as_no_sample():
    with pytest.raises(ValueError, match="publish 0: expected at least 1"):
        Publish(0)


# -- cache ----------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="_snmaxtime=;.0123456789[]()-now"))
def test_MS_45_no_text_is_worse_than_malformed(text):
    with suppress(Malformed):
        parse(text, 64, 10**18)
    node = kernel.Node(CACHE, CacheRecord(), name="c", now_ns=0, check=True)
    assert node.feed(ask(text), 0)


# -- keys -----------------------------------------------------------------------------------------------------------


def test_MS_47_the_plain_layout():
    assert keys.plain_key("p~2", "demo/a") == "p~2/demo/a"
    assert keys.read_plain("p~2/demo/a") == keys.KeyPlace("p~2", "demo/a")
    assert keys.read_plain("*/demo/**") == keys.KeyPlace("*", "demo/**")


def test_MS_47_the_advanced_layout():
    source = keys.make_source_id("a1f", 12)
    assert source == "a1f/12"
    assert keys.make_source_key(source, "demo/a") == "demo/a/@adv/pub/a1f/12/_"
    assert keys.make_query_key(source, "demo/a") == "demo/a/@adv/*/a1f/12/**"
    assert keys.make_query_key("*", "demo/a") == "demo/a/@adv/**"
    assert keys.make_heartbeat_key("demo/a") == "demo/a/@adv/pub/**"
    for key in (keys.make_source_key(source, "demo/a"), keys.make_query_key(source, "demo/a")):
        assert keys.read_advanced(key) == keys.KeyPlace(source, "demo/a")
    assert keys.read_advanced("demo/a/@adv/**") == keys.KeyPlace("*", "demo/a")
    assert not keys.matches("demo/**", keys.make_source_key(source, "demo/a")), "@adv is verbatim"
    assert keys.matches(keys.make_heartbeat_key("demo/a"), keys.make_source_key(source, "demo/a"))
    assert keys.matches(keys.make_query_key(source, "demo/a"), keys.make_source_key(source, "demo/a"))


@pytest.mark.parametrize("key", ["", "/", "p", "p/", "/a", "p/a//b", "p q/a", "p/a?x", "p/a#", "p/**/**", "p/a*b",
                                 "p/" + "a" * 5_000, "\u00e9/a", "p/a\n"])  # fmt: skip
def test_MS_47_no_plain_key(key):
    with pytest.raises(keys.BadKey, match="expected"):
        keys.read_plain(key)


@pytest.mark.parametrize("key", ["", "demo/a", "@adv/pub/a1/2/_", "a/@adv/pub/a1/2", "a/@adv/sub/a1/2/_",
                                 "a/@adv/pub/A1/2/_", "a/@adv/pub/0a/2/_", "a/@adv/pub/a1/x/_", "a/@adv/pub/a1/02/_",
                                 "a/@adv/pub/a1/4294967296/_", "a/@adv/pub//2/_", "a/@adv/pub/" + "a" * 33 + "/2/_",
                                 "a//@adv/pub/a1/2/_", "a/@adv/pub/a1/2/_/"])  # fmt: skip
def test_MS_47_no_advanced_key(key):
    with pytest.raises(keys.BadKey, match="expected"):
        keys.read_advanced(key)


@given(
    st.text(max_size=40), st.sampled_from([keys.read_plain, keys.read_advanced, keys.check_expression, keys.check_key])
)
def test_MS_47_no_text_is_worse_than_a_bad_key(text, read):
    with suppress(keys.BadKey):
        assert read(text)


@pytest.mark.parametrize(
    ("expression", "key", "found"),
    [
        ("a/b", "a/b", True), ("a/b", "a/c", False), ("a/*", "a/b", True), ("a/*", "a/b/c", False), ("a/*", "a", False),
        ("a/**", "a", True), ("a/**", "a/b/c", True), ("**", "a/b", True), ("**/c", "a/b/c", True),
        ("**/c", "a/c/b", False), ("a/**/c/*", "a/c/c/d", True), ("a/b$*", "a/bcd", True), ("a/$*d", "a/bcd", True),
        ("a/b$*d", "a/bcd", True), ("a/b$*b", "a/b", False), ("a/x$*y$*z", "a/x1y2z", True),
        ("a/x$*y$*z", "a/xz", False), ("**", "@a", False), ("*", "@a", False), ("@a", "@a", True),
        ("**/b", "a/@c/b", False), ("a", "a/b", False), ("$*", "@a", False),
    ],
)  # fmt: skip
def test_MS_47_which_keys_an_expression_is_about(expression, key, found):
    assert keys.matches(keys.check_expression(expression), keys.check_key(key)) is found


# -- subscriber -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(-100, 100), st.integers(3, 32))
def test_MS_62_the_nearest_number_is_read(number, away, width):
    half = 2 ** (width - 1)
    near = max(0, number + max(-half + 1, min(half, away)))
    assert unwrap_number(wrap_number(number, width), near, width) == number
    assert unwrap_number(number, near, 64) == number
