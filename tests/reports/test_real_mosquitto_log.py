"""A real mosquitto whose queue of one subscriber overflows: the judge says what that subscriber lost."""

from __future__ import annotations

import queue
import subprocess
import time
import tomllib

import paho.mqtt.client as paho
from foreign_logs import write_logs

from statemachines.testing.process_harness import free_port
from statemachines_reports.foreign_log import judge_files
from statemachines_reports.foreign_log.log_mapping import parse_mapping, read_template

PATIENCE_S = 60


class LoggedClient:
    """A client of paho that logs as the template says; `got`: what came, "subscribed" and "end" among it."""

    def __init__(self, port, name):
        self.name, self.log, self.got = name, [], queue.Queue()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, clean_session=False)
        self.client.on_message = self.take_message
        self.client.on_subscribe = lambda *_: self.got.put("subscribed")
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def take_message(self, _client, _own, message):
        if message.topic == "orders":
            self.add_lines("deliver", "ack", key=message.payload.decode(), client=self.name)
        self.got.put(message.topic)

    def add_lines(self, *kinds, **more):
        self.log += [{"at": time.monotonic(), "kind": kind, "topic": "orders"} | more for kind in kinds]

    def subscribe(self):
        self.client.subscribe([("orders", 1), ("end", 1)])
        assert self.got.get(timeout=PATIENCE_S) == "subscribed"

    def publish(self, topic, key):
        self.client.publish(topic, key, 1).wait_for_publish(PATIENCE_S)
        if topic == "orders":
            self.add_lines("publish", key=key)

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


def test_what_a_queue_that_overflowed_lost_is_a_loss(tmp_path):
    port, conf = free_port(), tmp_path / "mosquitto.conf"
    conf.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 30\nmax_inflight_messages 9\n"
    )
    command = ["/usr/sbin/mosquitto", "-c", str(conf)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as broker:
        next(line for line in broker.stderr if "running" in line)
        fast, slow, publisher = (LoggedClient(port, name) for name in ("fast", "slow", "publisher"))
        for one in (fast, slow):
            one.subscribe()
        slow.close()
        for number in range(61):
            publisher.publish("orders", f"p-{number}")
        again = LoggedClient(port, "slow")
        for one in (fast, again):
            # A queue that is full takes no end: one more is sent until it comes.
            while one.got.get(timeout=PATIENCE_S) != "end":
                publisher.publish("end", "")
        for one in (fast, again, publisher):
            one.close()
        broker.terminate()
    text = read_template("mqtt").replace("complete = false", "complete = true")
    logs = write_logs(tmp_path, p=publisher.log, f=fast.log, s=again.log)
    found = judge_files(logs, parse_mapping(tomllib.loads(text), "map.toml"))
    lost = next(one for one in found.checks if one.name == "lost")
    keys = {one["key"] for one in again.log}
    assert 0 < len(keys) < 61
    assert (found.verdict, lost.verdict, lost.found) == ("VIOLATED", "VIOLATED", 61 - len(keys))
