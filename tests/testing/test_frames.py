"""Fuzzed frames: nothing but FrameErrors comes of them, whichever protocol's roles read them."""

from __future__ import annotations

import pytest

from statemachines import registry
from statemachines.kernel import Message
from statemachines.testing import frames
from statemachines.testing.frames import KINDS, EscapedError, fuzz, make_inputs, sides_of
from statemachines.testing.protocol import Reader, part_of
from statemachines.wire import PacketCodec


class Order(Message, frozen=True):
    dish: str
    guests: int
    extras: tuple[str, ...] = ()


class Pay(Message, frozen=True):
    amount: float


class Serve(Message, frozen=True):
    dish: str
    first: int
    last: int
    prices: tuple[int, ...] = ()


PUB = {
    "kitchen": Reader("guest", Order | Pay, "kitchen-1~1"),
    "guest": Reader("kitchen", Serve, "guest-1~1", dials=True),
}
SPOKEN_TO = {"kitchen": Reader("guest", Order | Pay, "kitchen-1~1")}
PROTOCOLS = [PUB, *(part_of(one).readers for one in registry.protocols() if part_of(one).readers)]
BY_NAME = pytest.mark.parametrize("readers", PROTOCOLS, ids=lambda readers: " and ".join(readers))


def test_a_role_that_alone_reads_is_fuzzed_too():
    came = fuzz(SPOKEN_TO, 1, 1_000)
    assert came.refused > 500
    assert came.taken > 50


@pytest.mark.parametrize("kind", ["whole", "wrong role", "oversize", "wrong proof"])
@BY_NAME
def test_each_kind_is_what_its_name_says(readers, kind):
    """All that is whole is taken, nothing of the others is."""
    sides = sides_of(readers)
    for one in make_inputs(readers, 5, 40 * len(KINDS)):
        if one.kind == kind == "whole":
            assert frames.read(sides[one.reader], one, frames.random.Random(0)) == 1
        elif one.kind == kind:
            with pytest.raises(frames.FrameError):
                frames.read(sides[one.reader], one, frames.random.Random(0))


def test_what_escapes_is_shown_with_what_repeats_it(monkeypatch):
    def broken(codec, body):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(PacketCodec, "decode", broken)
    with pytest.raises(EscapedError, match=r"ZeroDivisionError: planted, by input \d+ of fuzz\(seed=9\), a .* bytes: "):
        fuzz(PUB, 9, 1_000)
