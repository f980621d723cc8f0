"""Packet strategies: any packet of a version of MQTT that the standard allows."""

from hypothesis import strategies as st

from statemachines import mqtt_codec
from statemachines.mqtt_codec.packet_rule import CODES

LETTERS = "aZ$ \u0001\u00e9\ufeff\uffff\U0001f600"
TEXTS = st.text(LETTERS + "/+#", max_size=6)
LEVELS = st.text(LETTERS, max_size=4)
TOPICS = st.lists(LEVELS, min_size=1, max_size=3).map("/".join).filter(bool)
BYTES = st.binary(max_size=20)
U16, U32 = st.integers(0, 0xFFFF), st.integers(0, 2**32 - 1)
IDS = st.integers(1, 0xFFFF)
FLAG = st.integers(0, 1)
FILTERS = st.builds(
    lambda levels, last, share: f"$share/{share}/" * bool(share) + ("/".join([*levels, *last]) or "#"),
    st.lists(st.just("+") | LEVELS, max_size=4),
    st.sampled_from([[], ["#"]]),
    LEVELS,
)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)
VARINTS = st.sampled_from([1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455])

VALUES = {
    "payload_format": FLAG,
    "message_expiry": U32,
    "content_type": TEXTS,
    "response_topic": TOPICS,
    "correlation_data": BYTES,
    "session_expiry": U32,
    "assigned_client_id": TEXTS,
    "server_keep_alive": U16,
    "request_problem_information": FLAG,
    "will_delay": U32,
    "request_response_information": FLAG,
    "response_information": TEXTS,
    "server_reference": TEXTS,
    "reason_string": TEXTS,
    "receive_maximum": IDS,
    "topic_alias_maximum": U16,
    "topic_alias": IDS,
    "maximum_qos": FLAG,
    "retain_available": FLAG,
    "maximum_packet_size": st.integers(1, 2**32 - 1),
    "wildcards_available": FLAG,
    "subscription_ids_available": FLAG,
    "shared_available": FLAG,
    "authentication_method": TEXTS,
}
MESSAGE = "payload_format message_expiry content_type response_topic correlation_data"


@st.composite
def properties(draw, version, names):
    """Some of these properties, user properties always among them."""
    if version == 4:
        return mqtt_codec.PacketProperties()
    fields = {name: draw(VALUES[name]) for name in names.split() if draw(st.booleans())}
    if "authentication_method" in fields and draw(st.booleans()):
        fields["authentication_data"] = draw(BYTES)
    return mqtt_codec.PacketProperties(**fields, user_properties=draw(PAIRS))


@st.composite
def publishes(draw, version):
    qos = draw(st.integers(0, 2))
    held = draw(properties(version, MESSAGE + " topic_alias"))
    if version == 5:
        fields = {name: getattr(held, name) for name in held.__struct_fields__}
        held = mqtt_codec.PacketProperties(**fields | {"subscription_ids": tuple(draw(st.lists(VARINTS, max_size=3)))})
    topic = draw(TOPICS) if held.topic_alias is None or draw(st.booleans()) else ""
    return mqtt_codec.PublishPacket(
        topic, draw(BYTES), qos, draw(st.booleans()), bool(qos) and draw(st.booleans()), draw(IDS) if qos else 0, held
    )


@st.composite
def connects(draw, version):
    will = st.builds(
        mqtt_codec.WillMessage,
        TOPICS,
        BYTES,
        st.integers(0, 2),
        st.booleans(),
        properties(version, MESSAGE + " will_delay"),
    )
    user_name = draw(st.none() | TEXTS)
    clean = draw(st.booleans())
    client = draw(TEXTS if clean or version == 5 else TEXTS.filter(bool))
    password = draw(st.none() | BYTES) if version == 5 or user_name is not None else None
    names = (
        "session_expiry receive_maximum maximum_packet_size topic_alias_maximum request_problem_information"
        " request_response_information authentication_method"
    )
    held = draw(properties(version, names))
    return mqtt_codec.ConnectPacket(
        client, mqtt_codec.MqttVersion(version), clean, draw(U16), draw(st.none() | will), user_name, password, held
    )


@st.composite
def connacks(draw, version):
    code = draw(st.sampled_from(sorted(CODES[mqtt_codec.ConnackPacket][1 if version == 5 else 2])))
    names = (
        "session_expiry receive_maximum maximum_qos retain_available maximum_packet_size assigned_client_id"
        " topic_alias_maximum reason_string wildcards_available subscription_ids_available shared_available"
        " server_keep_alive response_information server_reference authentication_method"
    )
    return mqtt_codec.ConnackPacket(code == 0 and draw(st.booleans()), code, draw(properties(version, names)))


def coded(kind, version, allowed, names, *before):
    """Packets that end with a reason code and properties."""
    picked = st.sampled_from(sorted(allowed)) if version == 5 else st.just(0)
    return st.builds(kind, *before, picked, properties(version, names))


@st.composite
def subscribes(draw, version):
    def one(topic_filter):
        if version == 4:
            return mqtt_codec.TopicSubscription(topic_filter, draw(st.integers(0, 2)))
        no_local = not topic_filter.startswith("$share/") and draw(st.booleans())
        return mqtt_codec.TopicSubscription(
            topic_filter, draw(st.integers(0, 2)), no_local, draw(st.booleans()), draw(st.integers(0, 2))
        )

    held = draw(properties(version, ""))
    if version == 5 and draw(st.booleans()):
        held = mqtt_codec.PacketProperties(user_properties=held.user_properties, subscription_ids=(draw(VARINTS),))
    return mqtt_codec.SubscribePacket(draw(IDS), tuple(map(one, draw(st.lists(FILTERS, min_size=1, max_size=3)))), held)


def auths():
    def with_method(code, method, held):
        fields = {name: getattr(held, name) for name in held.__struct_fields__}
        return mqtt_codec.AuthPacket(code, mqtt_codec.PacketProperties(**fields | {"authentication_method": method}))

    return st.just(mqtt_codec.AuthPacket()) | st.builds(
        with_method,
        st.sampled_from(sorted(CODES[mqtt_codec.AuthPacket][1])),
        TEXTS,
        properties(5, "reason_string authentication_method"),
    )


def packets(version):
    """Any packet of this version."""
    reason = "reason_string"
    suback = CODES[mqtt_codec.SubackPacket][1 if version == 5 else 2]
    unsuback = st.lists(st.sampled_from(sorted(CODES[mqtt_codec.UnsubackPacket][1])), min_size=1, max_size=3).map(tuple)
    kinds = [
        connects(version),
        connacks(version),
        publishes(version),
        coded(mqtt_codec.PubackPacket, version, CODES[mqtt_codec.PubackPacket][1], reason, IDS),
        coded(mqtt_codec.PubrecPacket, version, CODES[mqtt_codec.PubackPacket][1], reason, IDS),
        coded(mqtt_codec.PubrelPacket, version, CODES[mqtt_codec.PubrelPacket][1], reason, IDS),
        coded(mqtt_codec.PubcompPacket, version, CODES[mqtt_codec.PubrelPacket][1], reason, IDS),
        subscribes(version),
        st.builds(
            mqtt_codec.SubackPacket,
            IDS,
            st.lists(st.sampled_from(sorted(suback)), min_size=1, max_size=3).map(tuple),
            properties(version, reason),
        ),
        st.builds(
            mqtt_codec.UnsubscribePacket,
            IDS,
            st.lists(FILTERS, min_size=1, max_size=3).map(tuple),
            properties(version, ""),
        ),
        st.builds(
            mqtt_codec.UnsubackPacket, IDS, unsuback if version == 5 else st.just(()), properties(version, reason)
        ),
        st.just(mqtt_codec.PingreqPacket()),
        st.just(mqtt_codec.PingrespPacket()),
        coded(
            mqtt_codec.DisconnectPacket,
            version,
            CODES[mqtt_codec.DisconnectPacket][1],
            reason + " session_expiry server_reference",
        ),
    ]
    return st.one_of(*kinds, *([auths()] if version == 5 else []))
