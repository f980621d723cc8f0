"""Packets that are read together are those that are read one by one."""

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


def read_pieces(decoder, raw, cuts, rest, take):
    """The packets, the error behind them, and what is pending; besides, the runs that `take` takes."""
    found, runs = [], []
    try:
        for begin, end in pairwise([0, *sorted(cuts), len(raw) + rest]):
            decoder.feed(raw[begin:end])
            while (run := take(decoder)) or (packet := next(decoder, None)) is not None:
                found += run or [packet]
                runs.append(run)
    except PacketError as error:
        found.append((str(error), error.reason_code))
    return (found, decoder.pending_bytes), runs


@settings(max_examples=200)
@given(st.lists(PUBLISHED, max_size=12), st.lists(st.integers(1, 200), max_size=8), st.sampled_from((4, 5)), st.data())
def test_MQ_235_PUBLISHes_that_are_taken_together_are_those_that_come_one_by_one(sent, cuts, version, data):
    raw = b"".join(encode(one, MqttVersion(version)) for one in sent) + data.draw(st.sampled_from((b"", *ENDS)))
    most, used, payload_max = data.draw(st.integers(1, 4)), data.draw(st.sets(IDS)), data.draw(st.sampled_from((0, 9)))
    found, runs = read_pieces(
        ClientDecoder(version, 100), raw, cuts, 200, lambda one: one.take_publishes(most, used, payload_max)
    )
    assert found == read_pieces(ClientDecoder(version, 100), raw, cuts, 200, lambda one: [])[0]
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
    found, runs = read_pieces(
        ClientDecoder(5), raw, cuts, 60, lambda one: [PubackPacket(each) for each in one.take_pubacks(most)]
    )
    assert found == read_pieces(ClientDecoder(5), raw, cuts, 60, lambda one: [])[0]
    assert all(len(run) <= most for run in runs)
