"""The greeting: both prove the secret, a proof is worth nothing anywhere else, and both sides can say what is wrong."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.drivers.greeting import NONCE_SIZE, Greeting, Terms
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
