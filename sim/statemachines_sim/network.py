"""Network: one scheduled callback a message; it delays, reorders, and under faults loses, duplicates and cuts.

Every message draws once from the seed's stream, whatever faults are on, so that leaving a fault out of a schedule
disturbs the rest of the run as little as possible.

Rules: what becomes of single messages, for tests: drop the third ping, delay one grant.

    world.network.rule(drop("ping", nth=3))
    world.network.rule(delay("grant", by_ns=5 * S, to="consumer-1"))

A rule counts the messages that it is about, wherever they go; it hits the `nth` of them, or every one (nth=0).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappush
from itertools import chain
from typing import Any, Protocol

import numpy as np
from simpy.events import NORMAL

from statemachines.kernel import ConfigurationError, Message, life_of, name_of, node_of
from statemachines_sim.clock import SimulatedClock
from statemachines_sim.fault import Fault
from statemachines_sim.recorder import NodesByParty, Recorder
from statemachines_sim.run_settings import Net
from statemachines_sim.slow_link import SlowLink
from statemachines_sim.units import MS


class MessageRule:
    """Hits a message; `seen` counts those that it is about, `hit` those that it has hit."""

    def __init__(
        self, event: str, delays: Callable[[int], tuple[int, ...]], nth: int = 1, sender: str = "", to: str = ""
    ) -> None:
        if nth < 0:
            raise ConfigurationError("rule: nth", nth, "must be 1 or more, or 0 for every message")
        self.event = event
        self.delays = delays
        self.nth = nth
        self.sender = sender
        self.to = to
        self.seen = self.hit = 0

    def applies(self, party: str, to: str, message: Message) -> bool:
        """Whether it hits this one, which is counted."""
        if self.event and name_of(type(message)) != self.event:
            return False
        if not (is_of(party, self.sender) and is_of(to, self.to)):
            return False
        self.seen += 1
        hits = self.nth in (0, self.seen)
        self.hit += hits
        return hits


def drop(event: str = "", *, nth: int = 1, sender: str = "", to: str = "") -> MessageRule:
    """It never arrives.  `event`: the name of the message ("" = any); `sender`, `to`: a node or a party."""
    return MessageRule(event, lambda delay: (), nth, sender, to)


def delay(event: str = "", *, by_ns: int, nth: int = 1, sender: str = "", to: str = "") -> MessageRule:
    """It comes so much later."""
    return MessageRule(event, lambda delay: (delay + by_ns,), nth, sender, to)


def duplicate(event: str = "", *, late_ns: int = 0, nth: int = 1, sender: str = "", to: str = "") -> MessageRule:
    """It comes twice, the copy so much later."""
    return MessageRule(event, lambda delay: (delay + late_ns, delay), nth, sender, to)


def is_of(party: str, wanted: str) -> bool:
    """The party is, or lives on, the one that is wanted ("" = everybody)."""
    return not wanted or wanted in (party, node_of(party))


Route = Callable[[str], Sequence[str]]
"""The nodes that a message to this party or key goes to."""

Packet = tuple[str, int, str, str, str, int, Message, str]
"""What the recorder keeps of a send ("send", now_ns, node, party, to, msg, message), and the destination node."""

Delays = Callable[[int, float], tuple[int, ...]]
"""After what delays a message arrives that would take so long, and lies there in the share of a fault, from 0 to 1."""

UNIT = 2**20
"""A draw has three parts of 20 bits: for the delay, for the tail, for the faults."""

DRAWN_AT_ONCE = 1_024


def draws(net: Net, seed: int) -> Iterator[Iterable[tuple[int, int]]]:
    """For message after message its delay in nanoseconds, and a number below `UNIT` that says which fault hits it.

    They are worked out many at a time, by numpy: one by one they would be a tenth of what a message costs.
    """
    chance = random.Random(f"{seed}/network")
    low, high = (bound * MS for bound in net.delay_ms)
    while True:
        words = np.frombuffer(chance.randbytes(8 * DRAWN_AT_ONCE), "<u8")
        bits = words & 0xFFFFFFFF | words >> 36 << 32  # what `getrandbits(60)` gives
        first, second, third = bits & UNIT - 1, bits >> 20 & UNIT - 1, bits >> 40
        delay = low + (first * (high - low) >> 20)
        held_back = np.where(second < int(net.tail * UNIT), first * (net.tail_ms * MS) >> 20, 0)
        yield zip((delay + held_back).tolist(), third.tolist(), strict=True)


class Receivers(dict[str, Callable[[Packet], None]]):
    """`receivers[node]`: what takes a packet that arrives there.  It is looked for at the first packet, and again when
    the node has lost its place here, as it does whenever a life of it begins or ends."""

    def __init__(self, find: Callable[[str], Callable[[Packet], None]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, node: str) -> Callable[[Packet], None]:
        found = self[node] = self._find(node)
        return found


class PacketReceiver(Protocol):
    """What takes packets: a life of a node."""

    life: str
    alive: bool

    def receive(self, packet: Packet) -> None:
        """A message arrives."""


class SimulatedNetwork:
    """Between `processes`, by node; a packet for a node that is not there, or dead, is dropped.  `elders`: processes
    beside which a newer one goes by the same name;
    `lasting`: cuts that nothing heals."""

    def __init__(
        self,
        env: SimulatedClock,
        net: Net,
        seed: int,
        recorder: Recorder,
        processes: Mapping[str, PacketReceiver],
        elders: Mapping[str, Sequence[PacketReceiver]],
    ) -> None:
        self._env = env
        self._recorder = recorder
        self._keep = recorder.note
        self._processes = processes
        self._elders = elders
        env.receivers = self._receivers = Receivers(self._find_receiver)
        self._draws = chain.from_iterable(draws(net, seed))
        self._counts: dict[str, int] = {}
        self._unsent = 0
        self._nodes = NodesByParty()
        self._faults: list[tuple[Fault, Delays]] = []
        self._reach = 0
        self._rules: list[MessageRule] = []
        self._route: Route | None = None
        self._last: dict[tuple[str, str], int] | None = {} if net.fifo else None
        if net.fifo:
            self.send = self._send_by_rules  # type: ignore[method-assign]
        self.cuts: dict[tuple[str, str], int] = {}
        self.lasting: set[tuple[str, str]] = set()
        self.slow: dict[str, SlowLink] = {}
        self.dropped = 0

    def attach(self, node: str, number: int) -> None:
        """A process starts: its messages are numbered from `number` << 40."""
        self._unsent += (number << 40) - self._counts.get(node, 0)
        self._counts[node] = number << 40
        self.forget_receiver(node)

    def forget_receiver(self, node: str) -> None:
        """A life of the node begins or ends: who takes its packets is looked for anew."""
        self._receivers.pop(node, None)

    @property
    def sent_count(self) -> int:
        """So many messages were sent."""
        return sum(self._counts.values()) - self._unsent

    def next_number(self, node: str) -> int:
        """The number of the next message that the node sends: later ones have greater ones."""
        return self._counts[node]

    def note_sent(self, node: str, party: str, to: str, message: Message, now_ns: int) -> Packet:
        """What is handed over on a node, and not sent, is in the trace like what is."""
        msg = self._counts[node]
        self._counts[node] = msg + 1
        self._unsent += 1
        packet: Packet = ("send", now_ns, node, party, to, msg, message, node_of(to))
        self._keep(packet)
        return packet

    def rule(self, rule: MessageRule) -> MessageRule:
        """From now on this becomes of the messages that the rule hits; the first rule that hits one counts."""
        self._rules.append(rule)
        self.send = self._send_by_rules  # type: ignore[method-assign]
        return rule

    def route_by(self, route: Route) -> None:
        """`route(to)` says which nodes a message to `to`, a party or a key, goes to; without it, the party's node."""
        self._route = route
        self.send = self._send_by_rules  # type: ignore[method-assign]

    def begin(self, fault: Fault, delays: Delays) -> None:
        """From now on a share `fault.rate` of the messages is hit, and arrives after these delays."""
        self._set([*self._faults, (fault, delays)])

    def end(self, fault: Fault) -> None:
        """No more."""
        self._set([one for one in self._faults if one[0] is not fault])

    def heal(self) -> None:
        """No faults, no slow links, and no cuts but those that last."""
        self._set([])
        self.cuts.clear()
        self.cuts.update(dict.fromkeys(sorted(self.lasting), 1))
        self.slow.clear()

    def slow_down(self, node: str, link: SlowLink) -> None:
        """From now on what is sent to the node passes over this link."""
        self.slow[node] = link
        self.send = self._send_by_rules  # type: ignore[method-assign]

    def send(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """From `party` on `node` to the party `to`, now."""
        counts, keep, env = self._counts, self._keep, self._env
        msg = counts[node]
        counts[node] = msg + 1
        packet: Packet = ("send", now_ns, node, party, to, msg, message, self._nodes[to])
        keep(packet)
        delay, share = next(self._draws)
        if share < self._reach or self.cuts:
            for later in self._delays(packet, delay, share):
                self._go(packet, later)
        else:  # most messages: `_go` without a call
            heappush(env._queue, (env._now + delay, NORMAL, next(env._eid), packet))  # type: ignore[misc]

    def _delays(self, packet: Packet, delay: int, share: int) -> tuple[int, ...]:
        """After what delays a packet arrives where there are cuts, or in whose share there may be a fault."""
        if (packet[2], packet[-1]) in self.cuts:
            self.drop(packet)
            return ()
        return self._hit(packet, delay, share / UNIT) if share < self._reach else (delay,)

    def _go(self, packet: Packet, delay: int) -> None:
        """It arrives after `delay`."""
        self._env.schedule(packet, NORMAL, delay)  # type: ignore[arg-type]

    def _send_by_rules(self, node: str, party: str, to: str, message: Message, now_ns: int) -> None:
        """In place of `send`, which stays flat: by rules, along routes, first in first out."""
        msg = self._counts[node]
        self._counts[node] = msg + 1
        self._keep(("send", now_ns, node, party, to, msg, message, ""))
        dests = (node_of(to),) if self._route is None else self._route(to)
        rule = next((rule for rule in self._rules if rule.applies(party, to, message)), None)
        for dest in dests:
            self._carry(("send", now_ns, node, party, to, msg, message, dest), rule)

    def _carry(self, packet: Packet, rule: MessageRule | None) -> None:
        """One packet on its way to one node."""
        node, dest = packet[2], packet[-1]
        delay, share = next(self._draws)
        if (node, dest) in self.cuts:
            self.drop(packet)
            return
        delays: tuple[int, ...] = (delay,)
        if rule is not None:
            delays = self._note_hit(packet, rule.delays(delay))
        elif share < self._reach:
            delays = self._hit(packet, delay, share / UNIT)
        if dest in self.slow:
            delays = self._queue(packet, delays)
        for delay in sorted(delays) if self._last is not None else delays:
            self._go(packet, self._in_turn(node, dest, delay))

    def _queue(self, packet: Packet, delays: tuple[int, ...]) -> tuple[int, ...]:
        """After what delays a packet arrives over a slow link."""
        link, now_ns = self.slow[packet[-1]], self._env.now
        passed = [link.pass_through(now_ns, delay, packet[6]) for delay in delays]
        if None in passed:
            self.drop(packet)
        return tuple(delay for delay in passed if delay is not None)

    def _in_turn(self, node: str, dest: str, delay: int) -> int:
        """After what was sent before on the same path, where paths are first in first out."""
        if self._last is None:
            return delay
        at = max(self._env.now + delay, self._last.get((node, dest), 0))
        self._last[node, dest] = at
        return at - self._env.now

    def in_flight(self) -> set[tuple[str, str]]:
        """(sender, receiver) of all messages that are on their way: looked up in what is scheduled, so that sending
        need not keep count."""
        return {(packet[3], packet[4]) for packet in self._packets()}

    def messages_in_flight(self) -> list[Message]:
        """All messages that are on their way."""
        return [packet[6] for packet in self._packets()]

    def _packets(self) -> Iterator[Packet]:
        scheduled: Iterable[tuple[Any, ...]] = self._env._queue
        return (event for *_, event in scheduled if type(event) is tuple)

    def drop(self, packet: Packet) -> None:
        """The message never arrives."""
        self.dropped += 1
        self._note("drop", packet)

    def _set(self, faults: list[tuple[Fault, Delays]]) -> None:
        self._faults = faults
        self._reach = int(max((fault.rate for fault, _ in faults), default=0.0) * UNIT)

    def _hit(self, packet: Packet, delay: int, chance: float) -> tuple[int, ...]:
        """The first fault whose share the message falls into hits it: after what delays it arrives."""
        for fault, delays in self._faults:
            if chance < fault.rate:
                return self._note_hit(packet, delays(delay, chance / fault.rate))
        return (delay,)

    def _note_hit(self, packet: Packet, delays: tuple[int, ...]) -> tuple[int, ...]:
        """A message that is lost, or arrives more than once, is in the trace."""
        if not delays:
            self.drop(packet)
        for _ in delays[1:]:
            self._note("duplicate", packet)
        return delays

    def _find_receiver(self, node: str) -> Callable[[Packet], None]:
        process = self._processes.get(node)
        if node in self._elders:
            return self._arrive_at_life
        return self.drop if process is None or not process.alive else process.receive

    def _arrive_at_life(self, packet: Packet) -> None:
        """What is for the newest of several processes under one name reaches it.  What is for another reaches that one
        or the newest, in turn: to whoever sends, they are one."""
        *_, to, msg, _, dest = packet
        newest = self._processes.get(dest)
        beside = [*self._elders[dest], *(() if newest is None else (newest,))]
        living = [process for process in beside if process.alive]
        elders = [process for process in living[:-1] if process.life == life_of(to)]
        if not living:
            self.drop(packet)
        elif elders and msg % 2:
            elders[0].receive(packet)
        else:
            living[-1].receive(packet)

    def _note(self, kind: str, packet: Packet) -> None:
        """Along a route the row says to which node it was: the party or key may stand for many."""
        _, _, _, party, to, msg, message, dest = packet
        peer = to if self._route is None else dest
        self._recorder.message(kind, self._env.now, node_of(party), party, peer, msg, message)
        self._recorder.hit(kind, dest, party, to, message, self._env.now)
