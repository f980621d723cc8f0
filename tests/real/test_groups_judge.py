"""The judge of real runs of groups is judged: what is tampered with is found, each by its own words."""

import hashlib

import pytest

from tests.real.carried_judge import judge_of_groups_judge as judge

MS = 1_000_000
TOPICS = {"a": [b"a0", b"a1", b"a2", b"a3"], "b": [b"b0", b"b1"]}


def got(owner, grant, stream, offset, ms, payload=None):
    payload = TOPICS[stream][offset] if payload is None else payload
    return ("got", f"1.0/{stream}", grant, offset, hashlib.sha256(payload).hexdigest()[:16], owner, ms * MS)


def ack(grant, stream, offset):
    return ("ack", f"1.0/{stream}", grant, offset, "", "", 0)


def both(owner, grant, stream, offset, ms):
    return [got(owner, grant, stream, offset, ms), ack(grant, stream, offset)]


def good():
    """c1 reads half of a, and is killed with a2 in hand; c2 goes on under another grant, and reads b."""
    return {
        "c1": [*both("c1~1/1", 1, "a", 0, 0), *both("c1~1/1", 1, "a", 1, 10), got("c1~1/1", 1, "a", 2, 20)],
        "c2": [
            *both("c2~1/1", 1, "b", 0, 0),
            *both("c2~1/1", 1, "b", 1, 10),
            *both("c2~1/1", 2, "a", 2, 500),
            *both("c2~1/1", 2, "a", 3, 510),
        ],
    }


def without(what, stream, offset):
    def tamper(lines):
        for name, written in lines.items():
            lines[name] = [one for one in written if (one[0], one[1], one[3]) != (what, f"1.0/{stream}", offset)]

    return tamper


def also(name, *more):
    def tamper(lines):
        lines[name] += more

    return tamper


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (without("ack", "b", 1), "1 messages were never acknowledged"),
        (without("got", "b", 1), "c2 acknowledged 1.0/b 1 under grant 1, and had not got it"),
        (without("got", "a", 1), "1.0/a: c1~1/1 got 2 behind 0 under grant 1"),
        (also("c1", got("c1~1/1", 1, "a", 3, 560)), "1.0/a: c1~1/1 got 3 after ('c2~1/1', 2) had got others"),
        (also("c1", got("c1~1/1", 1, "a", 2, 30)), "1.0/a: c1~1/1 got 2 behind 2 under grant 1"),
        (also("c2", got("c2~1/1", 3, "b", 0, 900, b"other")), "1.0/b 0 came with another content"),
        (also("c2", ("got", "1.0/b", 3, 2, "00", "c2~1/1", 900 * MS)), "1.0/b 2 came with another content"),
        (also("c2", ("got", "1.0/z", 3, 0, "00", "c2~1/1", 900 * MS)), "1.0/z 0 came with another content"),
        (also("c2", ack(1, "a", 3)), "c2 acknowledged 1.0/a 3 under grant 1, and had not got it"),
    ],
)
def test_what_is_tampered_with_is_found(tamper, says):
    lines = good()
    tamper(lines)
    assert says in judge(TOPICS, lines)
