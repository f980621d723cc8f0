"""Packets that are read together are those that are read one by one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.drivers.mqtt_connections.client_decoder import ClientDecoder
from statemachines.mqtt_codec import MqttVersion, PacketError, PubackPacket, PublishPacket, encode

IDS = st.integers(1, 9)
ANSWERED = st.one_of(
    st.builds(PubackPacket, st.integers(1, 65_535)),
    st.builds(PubackPacket, st.integers(1, 9), st.just(0x80)),
    st.builds(PublishPacket, st.just("t"), st.binary(max_size=3), st.just(1), packet_id=st.just(7)),
)

PUBLISHED = st.one_of(
    st.builds(PublishPacket, st.sampled_from(("t", "u/v")), st.binary(max_size=150), st.just(1), packet_id=IDS),
    st.builds(PublishPacket, st.just("t"), st.just(b"x"), st.integers(1, 2), st.booleans(), st.booleans(), IDS),
    st.builds(PubackPacket, IDS),
)
ENDS = (
    b"2\5\0\1t\0\0",
    b"2\5\0\1#\0\1",
    b"2",
    b"2\x85\0\0\1t\0\1",
    b"2\xff\xff\xff\xff",
    b"2\7\0\1t\0\5\0",
    b"\x36\2\0\0",
)


@settings(max_examples=200)
@given(st.lists(PUBLISHED, max_size=12), st.lists(st.integers(1, 200), max_size=8), st.sampled_from((4, 5)), st.data())
def test_MQ_235_PUBLISHes_that_are_taken_together_are_those_that_come_one_by_one(sent, cuts, version, data):
    raw = b"".join(encode(one, MqttVersion(version)) for one in sent) + data.draw(st.sampled_from((b"", *ENDS)))
    pieces = [raw[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(raw) + 200])]
    most, used, payload_max = data.draw(st.integers(1, 4)), data.draw(st.sets(IDS)), data.draw(st.sampled_from((0, 9)))

    def read(takes_runs):
        decoder, found, runs = ClientDecoder(version, 100), [], []
        try:
            for piece in pieces:
                decoder.feed(piece)
                while True:
                    run = decoder.take_publishes(most, used, payload_max) if takes_runs else []
                    runs += [run]
                    packet = None if run else next(decoder, None)
                    if not run and packet is None:
                        break
                    found += run or [packet]
        except PacketError as error:
            found.append((str(error), error.reason_code))
        return found, decoder.pending_bytes, runs

    *found, runs = read(True)
    assert found == [*read(False)[:-1]]
    for run in runs:
        ids = [one.packet_id for one in run]
        assert len(ids) == len({*ids} - used) <= most
        assert all((one.qos, one.retain, one.dup) == (1, False, False) for one in run)
        assert not payload_max or all(len(one.payload) <= payload_max for one in run)


@settings(max_examples=100)
@given(st.lists(ANSWERED, max_size=12), st.lists(st.integers(1, 60), max_size=8), st.integers(1, 4), st.data())
def test_PUBACKs_that_are_taken_together_are_those_that_come_one_by_one(sent, cuts, most, data):
    raw = b"".join(encode(one, MqttVersion.V5) for one in sent)
    if data.draw(st.booleans()):
        raw += data.draw(st.sampled_from((b"@\2\0\0", b"@\2\0", b"@", b"@\1\0", b"@\2\0\1\x41\2\0\1")))
    pieces = [raw[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(raw) + 60])]

    def read(takes_runs):
        decoder, found = ClientDecoder(5), []
        try:
            for piece in pieces:
                decoder.feed(piece)
                while True:
                    run = decoder.take_pubacks(most) if takes_runs else ()
                    assert len(run) <= most
                    packet = None if run else next(decoder, None)
                    if not run and packet is None:
                        break
                    found += [PubackPacket(one) for one in run] or [packet]
        except PacketError as error:
            found.append((str(error), error.reason_code))
        return found, decoder.pending_bytes

    assert read(True) == read(False)
