"""SequencedPublisher and SequencedSubscriber over any transport, attacked (docs/sequence_windows.md)."""

from __future__ import annotations

import random

import msgspec
import pytest

from statemachines.drivers import sequence_windows
from statemachines.drivers.sequence_windows.datagram import Datagram, decode, encode
from statemachines.kernel import ConfigurationError

S = 1_000_000_000
T = 1659131646 * S
DAY = 24 * 3600 * S
FIRST, NEXT, SKIP, CYCLE, REPEAT, NOT_SUBSCRIBED = sequence_windows.Verdict


class World:
    """A wire that keeps everything, and two clocks that are set by hand."""

    def __init__(self, **subscriber):
        self.wall, self.now = T, 0
        self.wire, self.got, self.lost, self.advised = [], [], [], []
        clocks = {"wall": lambda: self.wall, "now": lambda: self.now}
        self.clocks = clocks
        self.subscriber = sequence_windows.SequencedSubscriber(
            self.got.append,
            on_loss=self.lost.append,
            on_advisory=lambda fields: self.advised.append((self.now / S, fields)),
            **{"everything": True, **clocks, **subscriber},
        )

    def publisher(self, name="p~1", **given):
        return sequence_windows.SequencedPublisher(self.wire.append, publisher=name, **{**self.clocks, **given})

    def arrive(self, *places):
        """These of what was sent; none: all that was."""
        sent, wire = list(self.wire), self.wire
        for place in places or range(len(sent)):
            self.subscriber.receive(sent[place])
        wire.clear()

    def verdicts(self):
        told = [(one.verdict, one.lost) for one in self.got]
        self.got.clear()
        return told

    def at(self, seconds):
        self.now = round(seconds * S)
        self.subscriber.poll()


def test_SW_46_an_advisory_is_published_on_the_subject_of_the_source_and_its_own_loss_is_not_advised():
    wire = []
    world = World(publish=lambda subject, payload: watching.publish(subject, payload))
    watching = sequence_windows.SequencedPublisher(wire.append, publisher="w~1", **world.clocks)
    one = world.publisher()
    for turn in range(3):
        world.at(turn * 2)
        for _ in range(3):
            one.publish("s", b"")
        world.arrive(0, 2)
    for data in (wire[0], wire[2]):
        world.subscriber.receive(data)
    world.at(10)
    first = next(one for one in world.got if one.publisher == "w~1")
    told = {"mtype": "A", "sub": "_RV.ERROR.SYSTEM.DATALOSS.INBOUND.BCAST", "data": world.advised[0][1]}
    assert (first.subject, msgspec.json.decode(first.payload)) == (told["sub"], told)
    assert (world.lost[-1].subject, len(world.advised), len(wire)) == (told["sub"], 3, 3)


def test_a_message_that_does_not_fit_is_not_numbered():
    world = World()
    one = world.publisher(size=200)
    with pytest.raises(sequence_windows.MessageTooLarge, match="at most 200"):
        one.publish("s", bytes(200))
    with pytest.raises(ConfigurationError, match="must not be empty"):
        one.publish("", b"")
    with pytest.raises(ConfigurationError, match="at most 4096 bytes"):
        world.publisher().publish("s" * 10_000, b"")
    one.publish("s", bytes(100))
    assert decode(world.wire[0]).number == 0x5C19ADC000000001
    with pytest.raises(ConfigurationError, match="1 to 128"):
        world.publisher("p" * 129)
    with pytest.raises(sequence_windows.FramesUsedUp):
        world.publisher("q", wall=lambda: 2**62).publish("s", b"")


# -- attacked -------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_message_are_counted():
    world = World()
    good = encode("p", "s", 0x5C19ADC000000001, 0, 0, b"x")
    encoded = [
        Datagram(2, "", 7, "s", 1, 0, 0, b""), Datagram(2, "p", 7, "", 1, 0, 0, b""),
        Datagram(2, "p", -1, "s", 1, 0, 0, b""), Datagram(2, "p", "7", "s", 1, 0, 0, b""),
        Datagram(2, "p", 7, "s", 1, -1, 0, b""), Datagram(2, "p" * 129, 7, "s", 1, 0, 0, b""),
        Datagram(2, "p", 7, "s" * 4097, 1, 0, 0, b""), Datagram(2, "p", 7, "s", "1", 0, 0, b""),
        Datagram(2, "p", 7, "s", 2.5, 0, 0, b""), [2, "p", 7, "s", 1, 0, 0, b"", 0], [2, "p"], {}, 7,
    ]  # fmt: skip
    bad = [b"", good[:-1], good + b"\0", b"\xff" * 40, b"\x91" * 60_000, *map(msgspec.msgpack.encode, encoded)]
    for data in bad:
        with pytest.raises(sequence_windows.MalformedDatagram):
            decode(data)
        assert world.subscriber.receive(data) is None
    assert world.subscriber.losses().malformed == len(bad)
    chance = random.Random(1)
    for _ in range(3000):
        data = bytearray(good)
        data[chance.randrange(len(data))] = chance.randrange(256)
        world.subscriber.receive(bytes(data[: chance.randrange(1, len(data) + 1)]))
    assert world.subscriber.receive(good) is not None or world.subscriber.losses().rows


@pytest.mark.parametrize("number", [0, 5, 1 << 35, 0x5C19ADC000000000, 1 << 64, (1 << 64) - 1])
def test_numbers_that_cannot_be_are_refused_and_counted(number):
    """Base 0, frame 0, more than 64 bits, the far future."""
    world = World()
    assert world.subscriber.receive_message("p", "s", number, b"") is None
    report = world.subscriber.losses()
    assert [row.refused for row in report.rows] == [1]
    assert "refused: 1" in report.text()


def test_a_life_is_a_number_of_64_bits():
    for life in (-1, 1 << 64):
        with pytest.raises(ConfigurationError, match="life"):
            World().publisher(life=life)
    assert World().publisher().life not in (0, World().publisher().life)


def test_a_callback_that_raises_takes_nothing_from_the_others():
    world = World()
    one = world.publisher()
    for _ in range(5):
        one.publish("s", b"")
    sent = list(world.wire)

    def refuse(value):
        world.got.append(value)
        raise RuntimeError("no")

    world.subscriber = sequence_windows.SequencedSubscriber(
        refuse, on_loss=lambda loss: 1 / 0, on_advisory=lambda fields: world.advised.append(fields), everything=True,
        **world.clocks,
    )  # fmt: skip
    for place, error in ((0, RuntimeError), (2, RuntimeError), (3, RuntimeError)):
        with pytest.raises(error):
            world.subscriber.receive(sent[place])
    assert world.verdicts() == [(FIRST, 0), (SKIP, 1), (NEXT, 0)]
    assert [fields["lost"] for fields in world.advised] == [1]
    assert world.subscriber.losses().failed == 4
    assert world.subscriber.receive(sent[3]) is None


def test_SW_51_inboxes_beyond_the_bound_are_forgotten_and_counted():
    world = World()
    for number in range(4096 + 7):
        assert world.subscriber.receive_inbox(f"peer.{number}", 5)
    assert world.subscriber.losses().evicted == 7
