"""The greeting: both prove the secret, a proof is worth nothing anywhere else, and both sides can say what is wrong.

Containment of filters, against every topic that there is of a small alphabet.

The locker: what a machine has counted is handed out under the same words, and nothing else.
"""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statemachines.drivers.greeting import NONCE_SIZE, Greeting, Terms
from statemachines.drivers.payload_buffer import PayloadBuffer
from statemachines.drivers.topic import contains_filter
from statemachines.wire import FrameError, encode_hello, hello_of

SECRET = b"x" * 16
NONCES = (b"n" * NONCE_SIZE, b"m" * NONCE_SIZE)


def side(role, life, secret=SECRET, nonce=NONCES[0], mutual=False, names=None, store="", secrets=None):
    peer = {"leader": "consumer", "consumer": "leader"}[role]
    hello = hello_of(role, life, nonce=b"" if secret is None else nonce, mutual=mutual, store=store)
    terms = Terms(secrets or (() if secret is None else (secret,)), names=names)
    return Greeting(hello, peer, dialled=role == "consumer", terms=terms)


def leader(**options):
    return side("leader", "l~1", **{"nonce": NONCES[1], **options})


def consumer(**options):
    return side("consumer", "c~1", **options)


def refusal(greeting, framed):
    with pytest.raises(FrameError) as refused:
        greeting.feed(framed[4:])
    assert not greeting.done
    return str(refused.value)


# -- roles and two secrets ------------------------------------------------------------------------------------------

ROLE = b"r" * 16
PROVED = ("leader",)


def host(number, *, dialled, secrets=(SECRET,), mutual=False, **terms):
    """One of two leader hosts that talk to each other."""
    hello = hello_of("leader", f"l-{number}~1", nonce=NONCES[number] if secrets else b"", mutual=mutual)
    return Greeting(hello, "leader", dialled=dialled, terms=Terms(secrets, proved=PROVED, **terms))


def greet(there, here):
    """`there` dials: both are told all that the other says, until they are done."""
    here.feed(there.begin()[4:])
    here_said = here.begin()
    answer = here.feed(there.feed(here_said[4:])[4:])
    assert here.done
    there.feed(answer[4:])
    return there.done


def test_SS_251_who_cannot_ask_for_it_hears_no_leader_host():
    here = host(1, dialled=False)
    said = refusal(here, host(0, dialled=True, role_secrets=(ROLE,)).begin())
    assert "says it is a leader, and this node cannot ask it to prove that; start both with the same --leader-s" in said
    nobody = host(1, dialled=False, secrets=())
    assert nobody.feed(host(0, dialled=True, secrets=()).begin()[4:]) == b""
    assert nobody.done, "where nobody proves anything roles are as good as said"


OLD, NEW = b"o" * 16, b"n" * 16


def pair_of(kind, dials, accepts):
    """Who accepts, and who dials: a leader host and a member, or two leader hosts."""
    if kind == "secrets":
        return leader(secrets=accepts), consumer(secrets=dials)
    return host(1, dialled=False, role_secrets=accepts), host(0, dialled=True, role_secrets=dials)


@pytest.mark.parametrize("kind", ["secrets", "role_secrets"])
@pytest.mark.parametrize(
    ("dials", "accepts", "agreed"),
    [
        ((OLD,), (OLD, NEW), True),
        ((OLD,), (NEW, OLD), True),
        ((NEW,), (NEW, OLD), True),
        ((NEW,), (OLD, NEW), True),
        ((NEW, OLD), (OLD, NEW), True),
        ((OLD, NEW), (NEW, OLD), True),
        ((OLD, NEW), (OLD,), True),
        ((NEW, OLD), (OLD,), False),
        ((OLD, NEW), (NEW,), False),
        ((OLD,), (NEW,), False),
    ],
)
def test_SS_253_either_of_two_secrets_is_accepted_and_answered_with(kind, dials, accepts, agreed):
    """Who dials proves with the first: whoever accepts must know that one."""
    here, there = pair_of(kind, dials, accepts)
    if agreed:
        assert greet(there, here)
        return
    here.feed(there.begin()[4:])
    assert "does not know our secret" in refusal(here, there.feed(here.begin()[4:]))


def test_a_short_nonce_is_refused():
    assert "sent a nonce of 3 bytes; 32" in refusal(leader(), encode_hello("consumer", "c~1", nonce=b"abc"))


@given(st.randoms(use_true_random=False), st.booleans())
def test_whatever_comes_only_frame_errors_do(chance: random.Random, after_hello):
    here, there = leader(), consumer()
    good = there.begin()[4:]
    if after_hello:
        here.feed(good)
        good = there.feed(here.begin()[4:])[4:]
    body = bytearray(good)
    for _ in range(chance.randint(1, 4)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    try:
        here.feed(bytes(body))
    except FrameError:
        return
    assert after_hello <= (bytes(body) == good), "no other proof is accepted"


LEVELS = ("a", "b", "", "$x")
TOPICS = [levels for depth in range(1, 6) for levels in product(LEVELS, repeat=depth)]
"""Deeper by one than the filters, and of one name more than any filter has."""


def is_match(topic_filter, topic):
    """MQTT 5, section 4.7, said once more."""
    wanted = topic_filter.split("/")
    if topic[0].startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(topic) or level not in ("+", topic[place]):
            return False
    return len(wanted) == len(topic)


def filters():
    levels = st.lists(st.sampled_from(["a", "", "+", "$x"]), min_size=0, max_size=4)
    return st.builds(lambda some, end: "/".join([*some, *end]), levels, st.sampled_from([[], ["#"]])).filter(
        lambda one: one.count("/") < 4
    )


@given(filters(), filters())
@example("+/#", "#")
@example("#", "+/#")
@example("a/#", "a")
@example("#", "$x/a")
@example("+/a", "$x/a")
@example("$x/#", "#")
@example("a/+/#", "a/#")
def test_PS_452_one_filter_contains_another_where_it_matches_whatever_that_matches(outer, inner):
    expected = all(is_match(outer, topic) for topic in TOPICS if is_match(inner, topic))
    assert contains_filter(outer, inner) == expected


@given(filters(), st.sampled_from(TOPICS))
def test_PS_452_a_topic_is_contained_by_what_matches_it(topic_filter, topic):
    assert contains_filter(topic_filter, "/".join(topic)) == is_match(topic_filter, topic)


@pytest.mark.parametrize(
    ("outer", "inner", "contains"),
    [
        ("a/#", "#", False),
        ("#", "$share/g/a", False),
        ("$share/+/a/#", "$share/g/a/b", True),
        ("$share/+/a/#", "$shared/g/a/b", True),
        ("$share/g/#", "$share/h/a", False),
        ("$share/g/#", "$share/+/a", False),
        ("$share/g/#", "a", False),
        ("$share/+/#", "$share/g/$SYS/x", False),
        ("$share/+/#", "$queue/q/a", True),
        ("$share/+/#", "$share//a", True),
        ("a", "$share//a", False),
    ],
)
def test_PS_452_filters_of_groups_are_contained_by_filters_of_groups_alone(outer, inner, contains):
    assert contains_filter(outer, inner) is contains


def filled():
    locker = PayloadBuffer()
    locker.put("a", 1, 5, ["five", "six"])
    locker.put("a", 1, 7, ["seven"])
    return locker


def test_what_came_before_is_not_wanted_any_more():
    locker = filled()
    assert locker.take("a", 1, 7, 7) == ["seven"]
    assert len(locker) == 0


@pytest.mark.parametrize(
    ("key", "grant", "first", "last"), [("b", 1, 5, 5), ("a", 2, 5, 5), ("a", 1, 4, 5), ("a", 1, 5, 8)]
)
def test_what_is_not_there_is_not_handed_out(key, grant, first, last):
    locker = filled()
    with pytest.raises(KeyError, match="are not kept"):
        locker.take(key, grant, first, last)
    assert locker.take("a", 1, 5, 7) == ["five", "six", "seven"], "a refused taker takes nothing"


@given(st.lists(st.integers(1, 5), max_size=8), st.data())
def test_however_it_is_put_and_taken_everything_comes_out_once_in_order(sizes, data):
    locker, number = PayloadBuffer(), 0
    for size in sizes:
        locker.put("k", 3, number, list(range(number, number + size)))
        number += size
    out = []
    while len(out) < number:
        last = data.draw(st.integers(len(out), number - 1))
        out += locker.take("k", 3, len(out), last)
    assert out == list(range(number))
