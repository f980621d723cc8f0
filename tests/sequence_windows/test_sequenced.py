"""SequencedPublisher and SequencedSubscriber over any transport, attacked (docs/sequence_windows.md)."""

from __future__ import annotations

import random

import msgspec
import pytest

from statemachines.drivers import sequence_windows
from statemachines.drivers.sequence_windows.datagram import Datagram, OtherLayout, check_size, decode, encode
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


@pytest.mark.parametrize("ahead", [2**34, 7 << 35], ids=["in its frame", "frames later"])
def test_SW_81_one_forged_datagram_silences_nobody_and_a_real_cut_is_counted_exactly(ahead):
    world = World()
    one = world.publisher()
    for number in range(3):
        one.publish("s", b"%d" % number)
    sent = decode(world.wire[-1])
    world.arrive()
    forged = (sent.publisher, sent.subject, sent.number + ahead, 0, 0, b"forged", sent.life)
    world.subscriber.receive(encode(*forged))
    for number in range(3, 20_006):
        one.publish("s", b"%d" % number)
    world.got.clear()
    before = world.subscriber.losses().lost_messages
    world.arrive(0, 1, 20_002)  # a long cut
    assert [(got.payload, got.verdict, got.lost) for got in world.got] == [
        (b"3", NEXT, 0), (b"4", NEXT, 0), (b"20005", SKIP, 20_000)
    ]  # fmt: skip
    assert world.subscriber.losses().lost_messages - before == 20_000
    one.publish("s", b"on")
    world.arrive()
    assert (world.got[-1].payload, world.got[-1].verdict) == (b"on", NEXT)


def test_a_loss_is_attached_called_back_and_advised():
    world = World(client=7500)
    one = world.publisher()
    for number in range(6):
        one.publish("s", b"%d" % number)
    world.arrive(0, 1, 4, 5)
    assert [one.payload for one in world.got] == [b"0", b"1", b"4", b"5"]
    assert world.verdicts() == [(FIRST, 0), (NEXT, 0), (SKIP, 2), (NEXT, 0)]
    assert world.lost == [sequence_windows.Loss("p~1", "s", 0x5C19ADC000000005, 2, False)]
    ((at, fields),) = world.advised
    assert (at, fields["lost"], fields["sub1"], fields["lost1"], fields["scid"]) == (0, 2, "s", 2, 7500)
    (row,) = world.subscriber.losses().rows
    assert (row.user, row.lost, row.lost_ns, row.unknown) == ("p~1", 2, T, 0)


def test_advisories_come_when_polled_and_the_deadline_says_when():
    world = World()
    one = world.publisher()
    for _ in range(7):
        one.publish("s", b"")
    sent = list(world.wire)
    world.subscriber.receive(sent[0])
    assert world.subscriber.deadline() is None
    world.subscriber.receive(sent[2])
    assert world.subscriber.deadline() == S
    world.now = S // 2
    world.subscriber.receive(sent[6])
    world.at(0.9)
    assert [fields["lost"] for _, fields in world.advised] == [1]
    world.at(1.0)
    world.at(2.0)
    assert [(at, fields["lost"]) for at, fields in world.advised] == [(0, 1), (1.0, 3)]
    assert world.subscriber.deadline() is None


def test_joins_are_what_the_host_says():
    world = World()
    one = world.publisher()

    def joins():
        one.publish("s", b"")
        world.arrive()
        world.subscriber.unsubscribe("s")
        world.subscriber.subscribe("s")
        return world.got.pop().join

    assert joins() is sequence_windows.Join.UNKNOWN
    world.subscriber.note_convergence()
    assert joins() is sequence_windows.Join.UNVERIFIED
    world.wall += 60 * S
    world.subscriber.note_convergence()
    one.start_new_streams()
    assert joins() is sequence_windows.Join.UNVERIFIED
    world.wall += 60 * S
    fresh = world.publisher("q~1")
    fresh.publish("s", b"")
    world.arrive()
    assert world.got.pop().join is sequence_windows.Join.VERIFIED


def test_a_stream_that_is_older_than_the_convergence_begins_anew_and_loses_nothing():
    world = World()
    one = world.publisher()
    one.publish("s", b"")
    one.publish("s", b"")
    world.wall += 60 * S
    one.start_new_streams()
    one.publish("s", b"")
    assert world.arrive() is None
    assert world.verdicts() == [(FIRST, 0), (NEXT, 0), (NEXT, 0)]


def test_what_is_not_subscribed_is_counted():
    world = World(everything=False)
    world.subscriber.subscribe("wanted")
    one = world.publisher()
    one.publish("wanted", b"")
    one.publish("other", b"")
    world.arrive()
    assert world.verdicts() == [(FIRST, 0)]
    (row,) = world.subscriber.losses().rows
    assert (row.not_subscribed, row.not_subscribed_ns) == (1, T)


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


@pytest.mark.parametrize("size", [100, 200, 1000])
def test_the_size_is_that_of_the_widest_number(size):
    for length in range(size - 90, size + 1):
        payload = bytes(length)
        fits = len(encode("p", "s", 2**64 - 1, 2**63 - 1, 2**64 - 1, payload)) <= size
        if fits:
            check_size("p", "s", payload, size)
        else:
            with pytest.raises(sequence_windows.MessageTooLarge):
                check_size("p", "s", payload, size)


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


def test_two_publishers_with_one_id_are_told_apart_by_their_lives():
    world = World()
    one, other = world.publisher("twin"), world.publisher("twin")
    for _ in range(4):
        one.publish("s", b"one")
        other.publish("s", b"other")
    world.arrive(0, 1, 3, 6, 7)  # of one the 1st and the 4th, of the other the 1st, 2nd and 4th
    assert [(told.payload, told.life, told.lost) for told in world.got] == [
        (b"one", one.life, 0), (b"other", other.life, 0), (b"other", other.life, 0), (b"one", one.life, 2),
        (b"other", other.life, 1),
    ]  # fmt: skip
    assert [row.user for row in world.subscriber.losses().rows] == ["twin"]


def test_without_a_life_two_publishers_with_one_id_cannot_be_told_apart_and_nothing_comes_twice():
    world = World()
    one, other = world.publisher("twin", life=0), world.publisher("twin", life=0)
    for _ in range(3):
        one.publish("s", b"one")
        other.publish("s", b"other")
    world.arrive()
    numbers = [told.number for told in world.got]
    assert len(numbers) == len(set(numbers)) == 3
    assert world.subscriber.losses().rows[0].repeat == 3


def test_a_life_is_a_number_of_64_bits():
    for life in (-1, 1 << 64):
        with pytest.raises(ConfigurationError, match="life"):
            World().publisher(life=life)
    assert World().publisher().life not in (0, World().publisher().life)


def test_a_datagram_of_another_layout_is_counted_apart_and_named_now_and_then(caplog):
    """What another version has nobody knows."""
    world = World()
    older = msgspec.msgpack.encode([1, "p", "s", 0x5C19ADC000000001, 0, 0, b"x"])
    later = msgspec.msgpack.encode([3, {"publisher": "p"}])
    for data in (older, older, older, later):
        assert world.subscriber.receive(data) is None
    report = world.subscriber.losses()
    assert (report.other_layout, report.malformed) == (4, 0)
    assert "of another version's layout: 4" in report.text()
    assert ["layout 1" in one.message for one in caplog.records] == [True, True, False]
    with pytest.raises(OtherLayout, match="layout 1, and we speak 2"):
        decode(older)


def test_losses_of_more_publishers_than_are_remembered_are_not_silent():
    """Those that come back are FIRST with an unknown loss, and advised; the others are counted exactly."""
    world = World(publishers_max=3)
    publishers = [world.publisher(f"p{n}") for n in range(4)]
    for one in publishers:
        one.publish("s", b"")
    world.arrive()
    assert world.verdicts() == [(FIRST, 0)] * 4
    assert world.subscriber.losses().evicted == 1
    for one in publishers[1:]:
        for _ in range(3):
            one.publish("s", b"")
    world.arrive(2, 5, 8)  # two of each are lost: all three are still remembered
    assert world.verdicts() == [(SKIP, 2)] * 3
    publishers[0].publish("s", b"")
    world.arrive()
    (told,) = world.got
    assert (told.verdict, told.lost, told.unknown) == (FIRST, 1, True)
    report = world.subscriber.losses()
    assert [(row.user, row.lost, row.unknown) for row in report.rows] == [
        ("p0", 1, 1), ("p1", 2, 0), ("p2", 2, 0), ("p3", 2, 0),
    ]  # fmt: skip
    assert world.lost[-1].unknown
    world.at(2)
    assert sum(fields["lost"] for _, fields in world.advised) == 7


def test_a_publisher_whose_clock_is_a_day_off_is_heard_and_never_verified():
    world = World()
    world.subscriber.note_convergence()
    for off, join in ((DAY, sequence_windows.Join.UNKNOWN), (-DAY, sequence_windows.Join.UNVERIFIED)):
        one = world.publisher(f"p{off}", wall=lambda off=off: world.wall + off)
        for _ in range(4):
            one.publish("s", b"")
        world.arrive(0, 1, 3)
        assert world.got[0].join is join
        assert world.verdicts() == [(FIRST, 0), (NEXT, 0), (SKIP, 1)]


def test_a_clock_that_comes_right_by_a_day_takes_no_number_back():
    world = World()
    one = world.publisher(window=sequence_windows.Window(1))
    world.wall = T + DAY
    one.publish("s", b"")
    world.wall = T
    for later in (11, 22, 33):
        world.now = later * S
        one.poll()
    one.publish("s", b"")
    one.publish("s", b"")
    assert [decode(data).number for data in world.wire] == sorted({decode(data).number for data in world.wire})
    world.arrive()
    assert world.verdicts() == [(FIRST, 0), (CYCLE, 0), (NEXT, 0)]


def test_a_receiver_that_was_suspended_across_two_rotations():
    """Its clock goes on, and nothing turned meanwhile: one flip when it wakes, so it still knows the stream."""
    world = World(window=sequence_windows.Window(1))
    one = world.publisher()
    for _ in range(4):
        one.publish("s", b"")
    sent = list(world.wire)
    world.subscriber.receive(sent[0])
    world.now = 3600 * S
    world.subscriber.receive(sent[3])
    assert world.verdicts() == [(FIRST, 0), (SKIP, 2)]
    world.at(3600 + 11)
    world.at(3600 + 22)
    world.subscriber.receive(sent[3])
    assert world.verdicts() == [(FIRST, 0)]


def test_numbers_replayed_from_an_hour_ago_are_repeats():
    world = World()
    one = world.publisher()
    for _ in range(3):
        one.publish("s", b"")
    old = list(world.wire)
    world.arrive()
    world.wall += 3600 * S
    one.start_new_streams()
    one.publish("s", b"")
    world.arrive()
    world.got.clear()
    for data in old:
        assert world.subscriber.receive(data) is None
    assert world.subscriber.losses().rows[0].repeat == 3


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


def test_a_callback_may_call_back():
    world = World()
    one = world.publisher()
    for _ in range(3):
        one.publish("s", b"")
    sent = list(world.wire)
    got = []

    def deliver(delivery):
        got.append(delivery.verdict)
        if len(got) == 1:
            world.subscriber.receive(sent[1])

    world.subscriber = sequence_windows.SequencedSubscriber(deliver, everything=True, **world.clocks)
    world.subscriber.receive(sent[0])
    world.subscriber.receive(sent[2])
    assert got == [FIRST, NEXT, NEXT]


def test_a_send_that_raises_is_a_loss():
    world = World()
    answers = iter([None, OSError("full"), None])

    def send(data):
        answer = next(answers)
        if answer is not None:
            raise answer
        world.wire.append(data)

    one = sequence_windows.SequencedPublisher(send, publisher="p", **world.clocks)
    one.publish("s", b"")
    with pytest.raises(OSError, match="full"):
        one.publish("s", b"")
    one.publish("s", b"")
    world.arrive()
    assert world.verdicts() == [(FIRST, 0), (SKIP, 1)]


def test_a_flood_of_publishers_is_bounded():
    world = World()
    for number in range(5000):
        world.subscriber.receive_message(f"p{number}", "s", 0x5C19ADC000000001, b"")
        world.subscriber.receive_message(f"p{number}", "s", 0x5C19ADC000000001, b"")
    report = world.subscriber.losses()
    assert len(report.rows) == 4097
    assert report.evicted == 5000 - 256
    assert report.subjects == 1
    assert "several times" in report.text()


def test_SW_51_an_inbox_is_counted_beside_the_rest():
    world = World()
    told = [world.subscriber.receive_inbox("peer.1", number) for number in (9, 10, 13, 13, 12, 14)]
    assert told == [True, True, True, False, False, True]
    (row,) = world.subscriber.losses().rows
    assert (row.inbox_lost, row.inbox_lost_ns) == (2, T)
    with pytest.raises(ValueError, match="inbox number"):
        world.subscriber.receive_inbox("peer.1", 0)


def test_SW_51_inboxes_beyond_the_bound_are_forgotten_and_counted():
    world = World()
    for number in range(4096 + 7):
        assert world.subscriber.receive_inbox(f"peer.{number}", 5)
    assert world.subscriber.losses().evicted == 7
