"""The greeting: both prove the secret, a proof is worth nothing anywhere else, and both sides can say what is wrong."""

from __future__ import annotations

import hmac
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.drivers.greeting import NONCE_SIZE, Greeting, Terms
from statemachines.wire import VERSION, FrameError, encode_hello, frame, hello_of

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


def test_both_prove_the_secret_the_one_who_dialled_first():
    here, there = leader(), consumer()
    assert here.feed(there.begin()[4:]) == b"", "a stranger who dials is told nothing"
    proof = there.feed(here.begin()[4:])
    assert proof
    assert not here.done
    assert not there.done
    assert there.has_sent_proof
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
        hello_of("leader", "l~1", nonce=NONCES[0]), "leader", dialled=True, terms=Terms((SECRET,))
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


def test_SS_251_leader_hosts_prove_it_by_the_second_secret_alone():
    assert greet(host(0, dialled=True, role_secrets=(ROLE,)), host(1, dialled=False, role_secrets=(ROLE,)))
    other = b"another role secret"
    for wrong in ((other,), (SECRET,), (other, SECRET)):
        here, there = host(1, dialled=False, role_secrets=(ROLE,)), host(0, dialled=True, role_secrets=wrong)
        here.feed(there.begin()[4:])
        said = refusal(here, there.feed(here.begin()[4:]))
        assert "does not know our secret; give both nodes the same --leader-secret-file" in said
        assert there.secret_option == "--leader-secret-file"


def test_SS_251_who_cannot_ask_for_it_hears_no_leader_host():
    here = host(1, dialled=False)
    said = refusal(here, host(0, dialled=True, role_secrets=(ROLE,)).begin())
    assert "says it is a leader, and this node cannot ask it to prove that; start both with the same --leader-s" in said
    nobody = host(1, dialled=False, secrets=())
    assert nobody.feed(host(0, dialled=True, secrets=()).begin()[4:]) == b""
    assert nobody.done, "where nobody proves anything roles are as good as said"


def test_SS_251_a_member_is_not_asked_for_the_second_secret():
    here = Greeting(
        hello_of("leader", "l~1", nonce=NONCES[1]),
        "consumer",
        "leader",
        dialled=False,
        terms=Terms((SECRET,), (ROLE,), PROVED),
    )
    member = consumer()
    assert member.secret_option == "--secret-file"
    assert greet(member, here)
    assert here.secret_option == "--secret-file"


@pytest.mark.parametrize("units", [frozenset(), frozenset({"consumer"}), frozenset({"leaders"})])
def test_SS_252_a_leader_host_shows_a_certificate_of_one(units):
    names = frozenset({"l-0", "l-1", "l"})
    said = refusal(
        host(1, dialled=False, mutual=True, names=names, units=units), host(0, dialled=True, mutual=True).begin()
    )
    assert "says it is a leader, and its certificate is not for one; give it one with leader as organizational" in said
    good = {"names": names, "units": frozenset({"leader", "x"}), "mutual": True}
    assert greet(host(0, dialled=True, **good), host(1, dialled=False, **good))
    one_sided = {**good, "role_secrets": (ROLE,)}
    here, there = host(1, dialled=False, **good), host(0, dialled=True, **one_sided)
    here.feed(there.begin()[4:])
    assert "the same --secret-file" in refusal(here, there.feed(here.begin()[4:])), "the proofs are of two secrets"


def test_SS_252_a_member_shows_no_role():
    here = Greeting(
        hello_of("leader", "l~1", mutual=True),
        "consumer",
        dialled=False,
        terms=Terms(proved=PROVED, names=frozenset({"c"})),
    )
    assert here.feed(consumer(secret=None, mutual=True).begin()[4:]) == b""
    assert here.done


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
