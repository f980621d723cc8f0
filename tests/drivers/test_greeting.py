"""The greeting: both prove the secret, a proof is worth nothing anywhere else, and both sides can say what is wrong."""

from __future__ import annotations

import hmac
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.drivers.greeting import NONCE_SIZE, Greeting
from statemachines.wire import VERSION, FrameError, encode_hello, frame, hello_of

SECRET = b"x" * 16
NONCES = (b"n" * NONCE_SIZE, b"m" * NONCE_SIZE)


def side(role, life, secret=SECRET, nonce=NONCES[0], mutual=False, names=None, store=""):
    peer = {"leader": "consumer", "consumer": "leader"}[role]
    hello = hello_of(role, life, nonce=b"" if secret is None else nonce, mutual=mutual, store=store)
    return Greeting(hello, peer, dialled=role == "consumer", secret=secret, names=names)


def leader(**options):
    return side("leader", "l~1", **{"nonce": NONCES[1], **options})


def consumer(**options):
    return side("consumer", "c~1", **options)


def refusal(greeting, framed):
    with pytest.raises(FrameError) as refused:
        greeting.feed(framed[4:])
    assert not greeting.done
    return str(refused.value)


def test_both_prove_the_secret_the_one_who_dialled_first():
    here, there = leader(), consumer()
    assert here.feed(there.begin()[4:]) == b"", "a stranger who dials is told nothing"
    proof = there.feed(here.begin()[4:])
    assert proof
    assert not here.done
    assert not there.done
    assert there.told_proof
    answer = here.feed(proof[4:])
    assert here.done
    assert there.feed(answer[4:]) == b""
    assert there.done
    assert SECRET not in here.begin() + there.begin() + proof + answer
    assert here.peer.life == "c~1"
    assert there.peer.life == "l~1"


def test_without_a_secret_the_hellos_are_all():
    here, there = leader(secret=None), consumer(secret=None)
    assert here.feed(there.begin()[4:]) == there.feed(here.begin()[4:]) == b""
    assert here.done
    assert there.done


def test_another_secret_is_refused_by_the_one_who_accepted():
    here, there = leader(), consumer(secret=b"y" * 16)
    here.feed(there.begin()[4:])
    assert "does not know our secret" in refusal(here, there.feed(here.begin()[4:]))


def test_a_leader_that_does_not_know_the_secret_is_refused():
    here, there = leader(secret=b"y" * 16), consumer()
    there.feed(here.begin()[4:])
    here.feed(there.begin()[4:])
    here._check_proof = lambda body: None  # it pretends to be content
    assert "does not know our secret" in refusal(there, here.feed(b""))


def test_our_own_proof_sent_back_is_worth_nothing():
    """A stranger that is dialled repeats what it hears: the hello under its own name with our nonce, then our proof."""
    there = consumer()
    proof = there.feed(encode_hello("leader", "l~1", nonce=there.mine.nonce)[4:])
    assert "does not know our secret" in refusal(there, proof)


def test_a_hello_of_our_own_is_refused():
    """Without this, a node that dials and listens could be made to prove itself to itself over two connections."""
    here = Greeting(
        hello_of("leader", "l~1", nonce=NONCES[0]), "leader", dialled=True, secret=SECRET, names=None
    )  # leader hosts that talk to each other
    assert "goes by our own name and number" in refusal(here, here.begin())


@pytest.mark.parametrize(
    "other",
    [
        {"nonce": b"o" * NONCE_SIZE},
        {"life": "c~2"},
        {"to": "l~2"},
        {"dialled": False},
        {"answers": b"o" * NONCE_SIZE},
        {"role": "leader"},
    ],
    ids=str,
)
def test_a_proof_of_another_connection_node_or_side_is_worth_nothing(other):
    said = {
        "dialled": True,
        "role": "consumer",
        "life": "c~1",
        "nonce": NONCES[0],
        "to": "l~1",
        "answers": NONCES[1],
        **other,
    }
    mine = (1, said["role"], said["life"], said["nonce"], False, "")
    yours = (VERSION, "leader", said["to"], said["answers"], False, "")
    body = msgspec.msgpack.encode(("gapless proof", said["dialled"], *mine, *yours))
    proof = frame(msgspec.msgpack.encode(hmac.digest(SECRET, body, "sha256")))
    here = leader()
    here.feed(consumer().begin()[4:])
    assert "does not know our secret" in refusal(here, proof)


def by_hand(dialled, speaker, listener):
    body = msgspec.msgpack.encode(("gapless proof", dialled, *speaker, *listener))
    return frame(msgspec.msgpack.encode(hmac.digest(SECRET, body, "sha256")))


@pytest.mark.parametrize(("here", "there"), [("a", "b"), ("a", ""), ("", "b")])
def test_SS_236_both_say_that_the_other_works_on_another_store(here, there):
    ours, theirs = leader(store=here), consumer(store=there)
    found, told = here or "none", there or "none"
    assert f"another store: it has {told}, and this node {found}; start both" in refusal(ours, theirs.begin())
    assert f"another store: it has {found}, and this node {told}; start both" in refusal(theirs, ours.begin())
    assert leader(store="a").feed(consumer(store="a").begin()[4:]) == b""


def test_the_same_proofs_made_by_hand_are_accepted():
    """So that the refusals above are for the one thing that each changes."""
    dialler, listener = (
        (VERSION, "consumer", "c~1", NONCES[0], False, ""),
        (VERSION, "leader", "l~1", NONCES[1], False, ""),
    )
    here = leader()
    here.feed(consumer().begin()[4:])
    assert here.feed(by_hand(True, dialler, listener)[4:]) == by_hand(False, listener, dialler)
    assert here.done


@pytest.mark.parametrize(
    ("ours", "theirs", "we_say", "they_say"),
    [
        ({"secret": None}, {}, "asks for a secret; start this node with", "shows no secret; start it with"),
        ({"mutual": True}, {}, "has no certificate; start it with", "asks for a certificate; start this node with"),
        ({}, {"mutual": True}, "that is not asked for here", "asks for no certificate; start it with --tls-ca"),
    ],
)
def test_what_only_one_side_has_is_said_by_both(ours, theirs, we_say, they_say):
    here, there = leader(**ours), consumer(**theirs)
    assert we_say in refusal(here, there.begin())
    assert they_say in refusal(there, here.begin())


def test_a_name_that_is_not_in_the_certificate_is_refused():
    here = leader(secret=None, mutual=True, names=frozenset({"c-1", "c-2"}))
    said = refusal(here, consumer(secret=None, mutual=True).begin())
    assert "says it is c, and its certificate is for c-1, c-2" in said
    here = leader(secret=None, mutual=True, names=frozenset())
    assert "its certificate is for nobody" in refusal(here, consumer(secret=None, mutual=True).begin())


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
