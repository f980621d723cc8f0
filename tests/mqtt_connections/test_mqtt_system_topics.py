"""What a node says of itself below `$SYS`."""

from exchanges import open_scene

from statemachines import __version__
from statemachines.drivers.mqtt_connections import mqtt_node

TOPICS = ("uptime", "version", "clients/connected", "packets/received", "packets/sent", "messages/dropped")


async def test_MQ_144_counters_come_to_those_who_subscribe_them(tmp_path, monkeypatch):
    """A subscriber of `#` gets none of them."""
    monkeypatch.setattr(mqtt_node, "PING_S", 0.05)
    monkeypatch.setattr(mqtt_node, "EVERY_S", 0.1)
    async with open_scene(tmp_path) as scene:
        await scene.play("all SUBSCRIBE #:0", "operator SUBSCRIBE $SYS/#:0")
        found = {}
        while len(found) < len(TOPICS):
            one = await scene.clients["operator"].read()
            found.setdefault(one.topic.removeprefix("$SYS/brokers/a/"), one.payload.decode())
        counters = scene.nodes["a"].read_counters()
        await scene.play("operator lost")
    assert sorted(found) == sorted(TOPICS)
    assert (found["version"], found["clients/connected"] in ("0", "1", "2")) == (__version__, True)
    assert int(found["packets/received"]) <= counters["packets/received"]
    assert counters["packets/received"] >= 4  # two CONNECT, two SUBSCRIBE
    assert counters["packets/sent"] >= 4 + len(TOPICS)
