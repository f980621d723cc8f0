"""Sequence windows, clause by clause, where the worked numbers do not say it (spec/sequence_windows/clauses.md).

SequencedPublisher and SequencedSubscriber over any transport, attacked (docs/sequence_windows.md).
"""

import random
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from statemachines.drivers import sequence_windows
from statemachines.drivers.sequence_windows import reorder
from statemachines.drivers.sequence_windows.datagram import Datagram, OtherLayout, decode, encode
from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows import subscriber_table
from statemachines.sequence_windows.loss_notifier import (
    LOSS_NOTIFIER,
    SUBJECTS_MAX,
    LossNotifierRecord,
    Lost,
    NotifierStatus,
    SecondOver,
    fields_of,
)
from statemachines.sequence_windows.message import Numbered, Verdict
from statemachines.sequence_windows.publisher_table import SUBJECT_MAX, PublisherTable
from statemachines.sequence_windows.publisher_window import ABSENT
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.sequence import BASE_MAX, FRAME_MAX, number_of, start_of
from statemachines.sequence_windows.subject_publishers import LIVES_MAX, PLACE_BYTES, line_of
from statemachines.sequence_windows.subscriber_table import ImpossibleMessage, SubscriberTable
from statemachines.sequence_windows.subscriber_window import FRESH, SUBSCRIBER_WINDOW, SubscriberWindowRecord
from statemachines.sequence_windows.windows import windows_of

S = 1_000_000_000
T = 1659131646 * S
F = 193148344
FIRST, NEXT, SKIP, CYCLE, REPEAT, NOT_SUBSCRIBED = Verdict


def message(base, frame=F, last=0, **more):
    return Numbered(frame, base, last or base, **more)


def table(*subjects, **given):
    made = SubscriberTable(Window(1), 0, **given)
    for subject in subjects:
        made.subscribe(subject)
    return made


# -- the publisher --------------------------------------------------------------------------------------------------


def test_SW_03_SW_07_a_clock_that_steps_back_takes_no_number_back():
    made = PublisherTable(Window(1), 0)
    told = [made.stamp("s", start_of(50)), made.stamp("s", start_of(40))]
    made.tick(11 * S)
    made.tick(22 * S)
    assert made.record("s").status is ABSENT
    told += [made.stamp("s", start_of(40)), made.stamp("other", start_of(30))]
    assert [(one.frame, one.first, one.time_ns) for one in told] == [
        (50, 1, start_of(50)),
        (50, 2, 0),
        (51, 1, start_of(51)),
        (51, 1, start_of(51)),
    ]
    assert told[2].chain == 0


def test_SW_13_a_receiver_reckons_a_subject_with_all_its_publishers_as_one():
    made = table("abc")
    for who in ("p", "q", "r"):
        made.receive("abc", who, message(1), T)
    assert made.subjects.size_bytes == 128 + 3 + 2 * PLACE_BYTES
    made.unsubscribe("abc")
    assert made.subjects.size_bytes == 0


# -- the receiver ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [(0, 1, 1), (FRAME_MAX + 1, 1, 1), (1, 0, 0), (1, 0, 3), (1, 3, 2), (1, 1, BASE_MAX + 1), (1, 1, 1, -1, 0),
     (1, 1, 1, 0, -1)],
)  # fmt: skip
def test_SW_16_what_is_no_number_is_malformed(fields):
    with pytest.raises(ValueError, match="expected"):
        Numbered(*fields)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(["numbered", *fields]), type=Numbered)


def test_SW_17_a_subject_has_no_more_than_4096_bytes():
    made = table(everything=True)
    assert made.receive("s" * SUBJECT_MAX, "p", message(1), T)[0].verdict is FIRST
    for subject in ("s" * 10_000, "ä" * (SUBJECT_MAX // 2 + 1)):
        with pytest.raises(ImpossibleMessage, match="at most 4096 bytes"):
            made.receive(subject, "p", message(1), T)
        with pytest.raises(ConfigurationError, match="at most 4096 bytes"):
            PublisherTable(Window(1), 0).stamp(subject, T)
    assert len(made.subjects) == 1


def test_SW_18_publishers_of_a_subject_are_bounded():
    """Who was silent longest goes first, whoever was met first."""
    made = table("s", publishers_max=20)
    for n in range(20):
        made.receive("s", f"p{n}", message(1), T)
    assert made.receive_one("s", "p0", number_of(F, 2), 0, 0, T).verdict is NEXT
    made.receive("s", "one more", message(1), T)
    assert made.evicted == 1
    assert made.receive("s", "p0", message(3), T)[0].verdict is NEXT
    assert made.receive("s", "p2", message(2), T)[0].verdict is NEXT
    assert made.receive("s", "p1", message(2), T)[0].verdict is FIRST
    assert len(made.subjects.current["s"]) == 20


def test_SW_18_bytes_of_all_places_are_bounded(monkeypatch):
    monkeypatch.setattr(subscriber_table, "PLACES_BYTES_MAX", 3 * PLACE_BYTES)
    made = table("s")
    for n in range(20):
        made.receive("s", f"p{n}", message(1), T)
    assert made.subjects.size_bytes == 129 + 3 * PLACE_BYTES
    assert made.evicted == 16


def test_SW_101_a_publisher_that_starts_again_takes_no_places_of_others():
    made = table("s")
    made.receive("s", "good", message(1), T)
    for life in range(1, 3 * LIVES_MAX):
        made.receive_one("s", "p", number_of(F, 1), 0, 0, T, life)
    assert made.evicted == 2 * LIVES_MAX - 1
    assert made.receive("s", "good", message(2), T)[0].verdict is NEXT
    assert made.receive_one("s", "p", number_of(F, 2), 0, 0, T, 3 * LIVES_MAX - 1).verdict is NEXT
    assert made.receive_one("s", "p", number_of(F, 2), 0, 0, T, 1).unknown


def test_SW_79_each_life_of_a_publisher_has_a_record_of_its_own():
    made = table("s")
    told = [made.receive_one("s", "p", number_of(F, base), 0, 0, T, life) for life in (1, 2) for base in (1, 2, 4)]
    assert [(one.verdict, one.lost) for one in told] == 2 * [(FIRST, 0), (NEXT, 0), (SKIP, 1)]
    assert made.receive("s", "p", message(4), T, 1)[0].verdict is REPEAT
    assert made.receive("s", "p", message(5), T, 2)[0].verdict is NEXT
    assert made.record("s", "p", 2).publisher == line_of("p", 2) == "p#0000000000000002"
    assert line_of("p", 0) == "p"


AHEAD = {
    "in its frame": [Numbered(F, 2**34, 2**34)],
    "one between": [Numbered(F, 9, 9)],
    "another frame": [Numbered(F + 5, 7, 7)],
    "a stream that begins": [Numbered(F + 5, 1, 1)],
    "a stream after this one": [Numbered(F + 5, 1, 1, 0, number_of(F, 2))],
    "two in sequence": [Numbered(F, 500, 500), Numbered(F, 501, 501)],
    "a ladder": [Numbered(F, base, base) for base in range(64, 64_000, 64)],
    "a ladder of frames": [Numbered(F + n, 1, 1) for n in range(5, 500)],
}
"""Messages that nobody sent, behind the second one."""


@pytest.mark.parametrize("forged", AHEAD.values(), ids=AHEAD)
def test_SW_81_what_a_publisher_sends_below_a_jump_is_judged_as_if_it_had_not_come(forged):
    made = table("s")
    come = [message(1), message(2), *forged, message(3), message(6), message(6), *forged, message(7), message(8)]
    told = [made.receive("s", "p", event, T)[0] for event in come]
    real = [(one.verdict, one.lost) for one, event in zip(told, come, strict=True) if event not in forged]
    assert real == [(FIRST, 0), (NEXT, 0), (NEXT, 0), (SKIP, 2), (REPEAT, 0), (NEXT, 0), (NEXT, 0)]


def tell_each(record, ranges):
    """(base, verdict, loss) of each message of these ranges, and the record after them."""
    told = []
    for frame, first, last in ranges:
        step = SUBSCRIBER_WINDOW.step(record, Numbered(frame, first, last), 0)
        record = step.record
        for one in (effect.event for effect in step.effects):
            rest = (one.verdict if one.verdict is REPEAT else NEXT, 0, False)
            told.append((one.first, one.verdict, one.lost, one.unknown))
            told += [(base, *rest) for base in range(one.first + 1, one.last + 1)]
    return told, record


@pytest.mark.parametrize("seed", range(20))
def test_SW_99_the_messages_of_a_range_are_what_they_are_alone(seed):
    """Ranges before, behind and over jumps, of two frames."""
    chance = Random(seed)
    for _ in range(50):
        ranges = []
        for _ in range(7):
            first = chance.choice((1, 100, 200)) + chance.randrange(8)
            ranges.append((F + (chance.random() < 0.1), first, first + chance.choice((0, 0, 1, 2, 5, 100))))
        alone = [(frame, base, base) for frame, first, last in ranges for base in range(first, last + 1)]
        begun = SubscriberWindowRecord("s", "p", FRESH)
        assert tell_each(begun, ranges) == tell_each(begun, alone), ranges


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ("0213", "0123"), ("0321", "0123"), ("02.1", "02-1"), ("0234", "02-34"), ("0223.", "02-3"), ("02.43.", "02-34"),
        ("029.", "02-9------"), ("0.2.3", "02-3"),
    ],
)  # fmt: skip
def test_SW_102_a_message_waits_for_those_that_it_has_overtaken(came, told):
    """A dot: 50 ms have passed; a minus: a message is missing."""
    world = World(reorder_max=2)
    one = world.publisher()
    for n in range(10):
        one.publish("s", str(n).encode())
    for sign in came:
        if sign == ".":
            world.at(world.now / S + 0.05)
        else:
            world.subscriber.receive(world.wire[int(sign)])
    texts = [one.payload.decode() + "-" * one.lost for one in world.got]
    assert "".join(texts) == told


def test_SW_102_room_for_messages_that_wait_is_bounded(monkeypatch):
    for name in ("HELD_MAX", "HELD_BYTES_MAX"):
        monkeypatch.setattr(reorder, name, 1)
    world = World(reorder_max=2)
    one = world.publisher()
    for _ in range(4):
        one.publish("s", b"x")
    world.arrive(0, 2, 3)
    assert world.verdicts() == [(FIRST, 0), (SKIP, 1), (NEXT, 0)]
    with pytest.raises(ConfigurationError, match="reorder_max = 65: must be 0 to 64"):
        World(reorder_max=65)


def test_SW_17_a_clock_far_ahead_is_named_in_the_log(caplog):
    world = World()
    one = world.publisher("fast~1", wall=lambda: T + 3 * DAY)
    for _ in range(5):
        one.publish("s", b"")
    world.arrive()
    assert [record.message.count("'fast~1'") for record in caplog.records] == [1, 1, 1]
    assert "s ahead of our clock, expected at most 172800 s (horizon_ns)" in caplog.text


def test_SW_80_the_layout_of_another_version_is_refused_by_its_name():
    for data in (b"\x97\x01", b"\x98\x03rest"):
        with pytest.raises(OtherLayout, match=f"layout {data[1]}, and we speak 2"):
            decode(data)


# -- notification, inbox, parameters --------------------------------------------------------------------------------


def test_SW_45_subjects_are_bounded_and_their_losses_count():
    record = replace(LossNotifierRecord("c"), status=NotifierStatus.WAITING)
    many = Lost(tuple((f"s{n}", 1) for n in range(SUBJECTS_MAX + 50)))
    record = LOSS_NOTIFIER.step(record, many, 0).record
    told = LOSS_NOTIFIER.step(record, SecondOver(), 0).effects[0].event
    assert (told.lost, told.subjects) == (SUBJECTS_MAX + 50, SUBJECTS_MAX)
    assert [subject for subject, _ in told.listed] == [f"s{n}" for n in range(9)]
    assert fields_of(told, 1)["lost9"] == 1
    with pytest.raises(ValueError, match="at least one"):
        Lost(())


@pytest.mark.parametrize(
    ("said", "size"), [("4096", 4096), (4096, 4096), ("3 k", 3072), ("3KB", 3072), ("2 m", 2 << 20), ("1 gb", 1 << 30)]
)
def test_SW_60_sizes(said, size):
    assert windows_of({"pub-window-size": said}).publisher.size == size


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("pub-window-time", "9 sec"), ("sub-window-time", 9), ("pub-window-time", "60 mb"),
        ("pub-window-time", "1 day"),
        ("pub-window-time", -60), ("pub-window-time", "1.5 m"), ("pub-window-time", True), ("pub-window-time", None),
        ("pub-window-size", "10 sec"), ("pub-window-size", "ten"), ("sub-window-size", 0), ("sub-window-size", [1]),
        ("pub-window-size", "10 mb 5"), ("pub-window-size", "9" * 18 + " gb"), ("pub_window_tim", "60"),
        ("pub-window-size", "\u0661\u0660 mb"), ("sub-window-time", "999999999 m"),
    ],
)  # fmt: skip
def test_SW_60_what_is_none_is_refused_by_its_key(key, value):
    with pytest.raises(ConfigurationError) as told:
        windows_of({key: value})
    assert told.value.key == key


def test_SW_60_a_key_is_there_once():
    with pytest.raises(ConfigurationError, match="twice"):
        windows_of({"pub-window-size": 1, "pub_window_size": 1})


DAY = 24 * 3600 * S


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
