"""A publisher of QoS 2 whose node is killed between any two packets of the handshake: each message comes once.

Two nodes over one store.  The publisher speaks bytes of its own.  Its node is killed (SIGKILL) at a random moment after
a random packet, or stands still for longer than its lease and goes on (SIGSTOP, SIGCONT).  The publisher goes to the
other node, and repeats what was not answered, as the standard says.  Two subscribers, one at each node, say what they
got.

    python tests/real/mqtt_once_run.py --faults 50 --seed 7
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

from mqtt_run import PATIENCE_S, mqtt_nodes

from statemachines import mqtt_codec

KEPT = mqtt_codec.PacketProperties(session_expiry=3_600)
WINDOW = 8
"""Messages of the publisher that are under way together."""

PLACES = ("publish", "pubrec", "pubrel", "pubcomp")
"""After which packet a fault comes."""


class RawClient:
    """Packets over TCP, to one node after the other."""

    def __init__(self, client_id):
        self.client_id = client_id
        self.present = False
        self._writer = None

    async def connect(self, port):
        """Until a node accepts it."""
        while True:
            self.close()
            try:
                self.reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
                self._decoder, self._packets = mqtt_codec.Decoder(5), []
                self.send(self.make_connect())
                connack = await self.read()
                if connack.reason_code == 0:
                    self.present = connack.session_present
                    return
            except OSError:
                pass
            await asyncio.sleep(0.05)

    def make_connect(self):
        return mqtt_codec.ConnectPacket(self.client_id, mqtt_codec.MqttVersion.V5, clean_start=False, properties=KEPT)

    def send(self, packet):
        self._writer.write(mqtt_codec.encode(packet, mqtt_codec.MqttVersion.V5))

    async def read(self):
        """The next packet; raises `OSError` when the connection is gone."""
        while not self._packets:
            data = await self.reader.read(65_536)
            if not data:
                raise ConnectionError
            self._packets += self._decoder.feed(data)
        packet = self._packets.pop(0)
        if isinstance(packet, mqtt_codec.DisconnectPacket):
            raise ConnectionError
        return packet

    def close(self):
        """At once."""
        if self._writer is not None:
            self._writer.transport.abort()


class OncePublisher(RawClient):
    """Publishes numbers; `sent`: packet id -> (number, whether it was answered by PUBREC)."""

    def __init__(self, chance):
        super().__init__("writer")
        self._chance = chance
        self.open = {}
        self.count = 0
        self.seen = Counter()
        self._free = list(range(1, WINDOW + 1))

    async def begin(self, port):
        """As a client does that comes again: what is open, in its order."""
        await self.connect(port)
        for packet_id, (number, is_received) in list(self.open.items()):
            if is_received:
                self.send(mqtt_codec.PubrelPacket(packet_id))
            else:
                self.send(mqtt_codec.PublishPacket(topic_of(number), b"%d" % number, 2, dup=True, packet_id=packet_id))

    def publish(self):
        self.count += 1
        packet_id = self._free.pop(self._chance.randrange(len(self._free)))
        self.open[packet_id] = (self.count, False)
        self.send(mqtt_codec.PublishPacket(topic_of(self.count), b"%d" % self.count, 2, packet_id=packet_id))

    async def go_on(self, place="", after=0, most=10**9):
        """Until the `after`-th packet at this place, or until `most` are published and complete."""
        begun = self.seen[place]
        while True:
            while self._free and self.count < most:
                self.publish()
                self.seen["publish"] += 1
                if place == "publish" and self.seen[place] - begun >= after:
                    return
            if not self.open:
                return
            packet = await asyncio.wait_for(self.read(), PATIENCE_S)
            self.take(packet)
            if place and self.seen[place] - begun >= after:
                return

    def take(self, packet):
        number, is_received = self.open.get(packet.packet_id, (0, False))
        if isinstance(packet, mqtt_codec.PubrecPacket):
            assert packet.reason_code in (0, 0x10), packet
            self.seen["pubrec"] += 1
            self.open[packet.packet_id] = (number, True)
            self.send(mqtt_codec.PubrelPacket(packet.packet_id))
            self.seen["pubrel"] += 1
        else:
            assert isinstance(packet, mqtt_codec.PubcompPacket), packet
            assert is_received
            assert packet.reason_code in (0, 0x92), packet
            self.seen["pubcomp"] += 1
            del self.open[packet.packet_id]
            self._free.append(packet.packet_id)


def topic_of(number):
    return f"p/{number % 3}"


class OnceSubscriber(RawClient):
    """Takes messages with QoS 1, and notes each that is not marked as a repetition of one that it had."""

    def __init__(self, name):
        super().__init__(name)
        self.numbers = []
        self._had = {}

    async def run(self, ports):
        """For ever, from node to node."""
        for place in range(10**6):
            with contextlib.suppress(OSError), contextlib.closing(self):
                await self.connect(ports[place % len(ports)])
                if not self.present:
                    self._had.clear()
                    filters = (mqtt_codec.TopicSubscription("p/#", 1),)
                    self.send(mqtt_codec.SubscribePacket(1, filters))
                while True:
                    packet = await self.read()
                    if not isinstance(packet, mqtt_codec.PublishPacket):
                        continue
                    number = int(packet.payload)
                    if not (packet.dup and self._had.get(packet.packet_id) == number):
                        self.numbers.append(number)
                    self._had[packet.packet_id] = number
                    self.send(mqtt_codec.PubackPacket(packet.packet_id))
            await asyncio.sleep(0.02)


def judge_once(count, numbers):
    """What is wrong with what a subscriber was given: each of `count` once."""
    counts = Counter(numbers)
    missing = [number for number in range(1, count + 1) if not counts[number]]
    wrong = [f"missing: {missing[:10]}"] if missing else []
    twice = sorted(number for number, times in counts.items() if times > 1)
    if twice:
        wrong.append(f"twice: {twice[:10]}")
    return wrong


def count_moved(numbers):
    """How many came behind a later one of their topic."""
    topics = ([number for number in numbers if number % 3 == topic] for topic in range(3))
    return sum(after < before for of_topic in topics for before, after in pairwise(of_topic))


async def let_go(child, seconds):
    """A node that stood still goes on after so long, since it may have the file of the database locked, and ends."""
    await asyncio.sleep(seconds)
    child.send_signal(signal.SIGCONT)
    await asyncio.sleep(seconds / 4)
    child.kill()
    await child.wait()


async def play_once(folder, store, seed, faults):
    """(what is wrong, faults at each place, messages, how many were not in order)"""
    chance = random.Random(seed)
    met = Counter()
    async with mqtt_nodes(folder, store) as nodes:
        publisher = OncePublisher(chance)
        readers = [OnceSubscriber("one"), OnceSubscriber("two")]
        ports = [node.port for node in nodes]
        tasks = [
            asyncio.ensure_future(reader.run(order))
            for reader, order in zip(readers, (ports, ports[::-1]), strict=True)
        ]
        for reader in readers:
            while not reader.numbers:  # until it is subscribed; these messages do not count
                await publisher.begin(ports[0])
                await publisher.go_on(most=publisher.count + 1)
                publisher.close()
                await asyncio.sleep(0.05)
        first = publisher.count
        place, spare = nodes
        await publisher.begin(place.port)
        for _ in range(faults):
            at = chance.choice(PLACES)
            await publisher.go_on(at, chance.randint(1, 12))
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.003, 0.01)))
            met[at] += 1
            stops = chance.random() < 0.3
            place.child.send_signal(signal.SIGSTOP if stops else signal.SIGKILL)
            end = asyncio.ensure_future(let_go(place.child, chance.uniform(0.5, 2)) if stops else place.child.wait())
            publisher.close()
            await publisher.begin(spare.port)
            await publisher.go_on("pubcomp", chance.randint(1, 6))
            await end
            await place.start(nodes)
            place, spare = spare, place
        await publisher.go_on(most=publisher.count + 20)
        wanted = set(range(first + 1, publisher.count + 1))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not all(wanted <= set(reader.numbers) for reader in readers):
                    await asyncio.sleep(0.02)
        await asyncio.sleep(0.5)  # a second copy may come behind
        publisher.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    wrong = []
    for reader in readers:
        numbers = [number - first for number in reader.numbers if number > first]
        wrong += [f"{reader.client_id}: {one}" for one in judge_once(len(wanted), numbers)]
    return wrong, met, len(wanted), sum(count_moved(reader.numbers) for reader in readers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        wrong, met, count, moved = asyncio.run(
            play_once(Path(name), os.path.join(name, "s.db"), given.seed, given.faults)
        )
        for one in sorted(Path(name).glob("*.log")):
            print(one.read_text()[-2000:])
    print(f"{met.total()} faults {dict(met)}, {count} messages, {moved} not in order, {len(wrong)} wrong")
    for one in wrong:
        print(one)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
