"""Dead letters: stored once, before the group goes on behind the message (SS-345 to SS-350)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from test_failed_deliveries import KEY, STREAM, TWICE, expire, failing, granted_next, led, say_failed
from test_leader import Bench, declared, only

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.dead_letter import (
    REASONS,
    DeadLetter,
    DeadLettersRefused,
    LetterStored,
    LetterUnwritten,
    StoreLetter,
    read_dead_letter,
)
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped, StreamParked
from statemachines.shared_subscriptions.group_store import FailingMessage, StoredRecord
from statemachines.shared_subscriptions.message import Grant, Revoke, RevokeFinished
from statemachines.shared_subscriptions.stream_store import StreamStore

TOPIC = "$dead/g"
DEAD = replace(TWICE, dead_letter_topic=TOPIC)
LETTER = DeadLetter("g", "#", STREAM, 4, 2, REASONS[False])


def spend(bench, grant, progress=4):
    """Its member gives the message back for the last time, and lets go."""
    (revoke,) = only(Revoke, say_failed(bench, grant, progress, 2))
    say_failed(bench, revoke, progress, 2, finished=True)
    return bench.feed(RevokeFinished(grant.borrower, 1, 1, grant.stream, grant.grant))


def letters(bench):
    return [one for one in bench.requests if isinstance(one, StoreLetter)]


def stored(bench):
    """The dead letters in the store."""
    return sum(one.count for one in bench.streams.by_id.values() if one.topic == TOPIC)


def test_SS_346_the_letter_follows_the_durable_count_and_the_group_goes_on_after_it():
    bench, grant = led(DEAD)
    spend(bench, grant)
    assert bench.told[-1] == StreamParked("leader-1~1/1", STREAM, 4, 2)
    assert not letters(bench), "it is not durable yet that nobody is handed the message"
    bench.down = "deaf"
    bench.at(bench.now + 1_000)
    assert not letters(bench), "nor is it while the commit is open"
    bench.down, lost = "", bench.lost
    for request in lost:
        if hasattr(request, "put"):
            bench.groups, answers = bench.groups_service.apply(bench.groups, request, bench.now)
            sent = bench.feed(*answers)
    assert [one.letter for one in letters(bench)] == [LETTER]
    assert bench.told[-1] == MessageDropped("leader-1~1/1", STREAM, 4, 2, asked=False, topic=TOPIC)
    (grant,) = only(Grant, sent)
    assert (grant.progress, grant.failed, stored(bench)) == (5, 0, 1)
    bench.at(bench.now + 2_000)
    assert (failing(bench), bench.stored(f"progress:{STREAM}")) == (None, 5)


def test_SS_347_the_next_leader_stores_no_second_letter():
    bench, grant = led(DEAD)
    bench.streams_service.apply, real = lambda *given: (real(*given)[0], ()), bench.streams_service.apply
    spend(bench, grant)
    bench.at(bench.now + 1_000)
    assert len(letters(bench)) == 1
    bench.streams_service.apply = real
    assert stored(bench) == 1, "the letter is there, and nobody has heard so"
    bench.feed(Halt())
    assert failing(bench) == FailingMessage(4, 2, parked=True)
    later = Bench(1, groups=bench.groups, configuration=DEAD)
    later.streams = bench.streams
    later.start()
    assert stored(later) == 1
    assert [isinstance(one, MessageDropped) for one in later.told] == [False, True]
    assert granted_next(later).progress == 5


def test_SS_347_one_message_has_one_letter_in_each_group():
    store, state = StreamStore(1), StreamStore(1).initial()
    answers = []
    for letter in (LETTER, LETTER, replace(LETTER, group="h"), replace(LETTER, offset=3), replace(LETTER, offset=5)):
        state, (answer,) = store.apply(state, StoreLetter(1, TOPIC, letter), 1)
        answers.append(answer)
    assert answers == [LetterStored(1, new) for new in (True, False, True, False, True)]
    assert state.by_id[f"0.0/{TOPIC}"].count == 3


def test_SS_348_a_letter_that_cannot_be_stored_keeps_the_message_and_others_have_their_turn():
    bench = Bench(2, configuration=DEAD).start()
    first, second = only(Grant, bench.join("c1")) + only(Grant, bench.ping("c1"))
    bench.down = ""
    for grant in (first, second):
        spend(bench, grant)
    real, refused = bench.streams_service.apply, []

    def refuse(state, request, now_ns):
        if isinstance(request, StoreLetter) and request.letter.stream == first.stream:
            refused.append(request)
            raise LookupError
        return real(state, request, now_ns)

    bench.streams_service.apply = refuse
    answer = bench.answer

    def answer_or_fail(effect):
        try:
            return answer(effect)
        except LookupError:
            bench.streams_service.apply = real
            bench.down = "before"
            sent = answer(effect)
            bench.down, bench.streams_service.apply = "", refuse
            return sent

    bench.answer = answer_or_fail
    bench.at(bench.now + 5_000)
    told = [one for one in bench.told if isinstance(one, LetterUnwritten)]
    assert told[0] == LetterUnwritten("leader-1~1/1", first.stream, 4, 1, "the stream store does not answer")
    assert len(told) >= 3
    assert [one.stream for one in bench.told if isinstance(one, MessageDropped)] == [second.stream]
    assert bench.record.failing[first.stream].parked
    bench.streams_service.apply = real
    bench.at(bench.now + 3_000)
    assert [one.stream for one in bench.told if isinstance(one, MessageDropped)] == [second.stream, first.stream]
    assert bench.record.letter is None


def test_SS_346_a_message_that_is_skipped_meanwhile_has_no_letter():
    groups = declared(DEAD).set(KEY, StoredRecord(FailingMessage(0, 2, parked=True, skip=True), 1))
    later = Bench(1, groups=groups, configuration=DEAD).start()
    assert not letters(later)
    assert granted_next(later).progress == 1


def test_SS_349_a_group_that_would_get_its_own_letters_is_told_so_and_parks():
    bench, grant = led(replace(DEAD, dead_letter_topic="dead/g"))
    assert bench.told == [DeadLettersRefused("leader-1~1/1", "g", "#", "dead/g")]
    spend(bench, grant)
    bench.at(bench.now + 3_000)
    assert bench.told[-1] == StreamParked("leader-1~1/1", STREAM, 4, 2)
    assert not letters(bench)


def test_SS_350_a_letter_says_why_its_message_failed_last():
    bench, _ = led(replace(DEAD, max_deliver=1))
    expire(bench)
    granted_next(bench)
    expire(bench)
    bench.at(bench.now + 2_000)
    assert [one.letter for one in letters(bench)] == [DeadLetter("g", "#", STREAM, 0, 2, REASONS[True])]


@pytest.mark.parametrize("others", [(), (("trace", b"\xff"), ("gapless", b""))])
def test_SS_350_a_letter_is_read_as_it_was_written(others):
    assert read_dead_letter((*others, *LETTER.as_headers().items())) == LETTER
    assert LETTER.as_headers()["gapless-stream"] == STREAM.encode()


@pytest.mark.parametrize("wrong", [{"gapless-group": None}, {"gapless-offset": b"many"}, {"gapless-count": b"\xff"}])
def test_SS_350_what_is_no_letter_is_refused(wrong):
    headers = LETTER.as_headers() | wrong
    with pytest.raises(ConfigurationError, match="are not those of a dead letter"):
        read_dead_letter((name, value) for name, value in headers.items() if value is not None)


WRONG = {
    "no bound": ({"dead_letter_topic": "dead"}, "needs max_deliver"),
    "a wildcard": ({"dead_letter_topic": "dead/#", "max_deliver": 3}, "must have no"),
    "a control character": ({"dead_letter_topic": "dead\n", "max_deliver": 3}, "control"),
    "dropped as well": ({"dead_letter_topic": "dead", "max_deliver": 3, "spent": "drop"}, "leave spent out"),
}


@pytest.mark.parametrize("case", WRONG)
def test_SS_345_a_dead_letter_topic_that_is_none_is_refused(case):
    given, rule = WRONG[case]
    with pytest.raises(ConfigurationError, match=f"dead_letter_topic = .*{rule}"):
        Configuration(**given).check()
