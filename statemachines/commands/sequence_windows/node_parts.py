"""Parts of the roles of `gapless node`: a publisher that logs its numbers, and a node that subscribes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from statemachines.drivers.lives import Life
from statemachines.drivers.sequence_windows.loss_report import MACHINE
from statemachines.drivers.sequence_windows.multicast import MulticastReceiver
from statemachines.drivers.sequence_windows.publisher import SequencedPublisher
from statemachines.drivers.sequence_windows.subscriber import Delivery, SequencedSubscriber
from statemachines.kernel import node_of
from statemachines.plain_text import plain_json
from statemachines.sequence_windows.message import Judged
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines.sequence_windows.subject_publishers import PLACES
from statemachines.sequence_windows.windows import Windows
from statemachines.trace.row import event_row

POLL_S = 0.05
REORDER = 8
"""A message waits for so many that it may have overtaken: UDP promises no order."""
log = logging.getLogger(__name__)


def publisher_of(life: Life, send: Callable[[bytes], object], windows: Windows) -> SequencedPublisher:
    """The publisher of a life, which logs every number that it gives."""

    def observe(about: str, told: Stamped, t_ns: int) -> None:
        if life.log is not None:
            node, machine = node_of(life.name), "sequence_windows/publisher_window"
            life.log.write([event_row(t_ns, node, f"{life.name}:{about}", "tell", told, machine=machine, data=True)])

    return SequencedPublisher(send, publisher=life.name, window=windows.publisher, observe=observe)


class SubscriberNode:
    """A subscriber on the event loop: it reads what has arrived, prints it, and answers `show-loss`."""

    def __init__(
        self,
        receiver: MulticastReceiver,
        life: Life,
        name: str,
        windows: Windows,
        subjects: tuple[str, ...],
        publishers_max: int = PLACES,
        publish: Callable[[str, bytes], object] | None = None,
        reorder_max: int = REORDER,
    ) -> None:
        self.receiver = receiver
        self.subscriber = SequencedSubscriber(
            self._print_delivery,
            on_advisory=lambda fields: _print({"advisory": fields}),
            publish=publish,
            client=life.number,
            everything=not subjects,
            window=windows.subscriber,
            publishers_max=publishers_max,
            observe=self._note,
            reorder_max=reorder_max,
        )
        for subject in subjects:
            self.subscriber.subscribe(subject)
        self._life = life
        self._name = name

    async def run(self, losses: Path | None) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        server = None if losses is None else await asyncio.start_unix_server(self._answer, losses)
        loop.add_reader(self.receiver.socket, self._read)
        _print({"joined": f"{self.receiver.group.address}:{self.receiver.group.port}"})
        try:
            while True:
                await asyncio.sleep(POLL_S)
                self._guard(self.subscriber.poll)
        finally:
            loop.remove_reader(self.receiver.socket)
            if server is not None and losses is not None:
                server.close()
                losses.unlink(missing_ok=True)

    def _read(self) -> None:
        for data in self.receiver.receive_ready():
            self._guard(self.subscriber.receive, data)

    def _guard(self, act: Any, *given: Any) -> None:
        """What a callback raises is said and counted, and stops nobody."""
        try:
            act(*given)
        except Exception:
            log.exception("a callback raised")

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(msgspec.json.encode(self.subscriber.losses()))
        try:
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _print_delivery(self, one: Delivery) -> None:
        line: dict[str, Any] = {"subject": one.subject, "from": one.publisher, "number": f"{one.number:#x}"}
        line |= {"verdict": one.verdict.value, "payload": one.payload.decode(errors="replace")}
        line |= {"lost": one.lost} if one.lost and not one.unknown else {}
        line |= {"lost": "unknown"} if one.unknown else {}
        line |= {"join": one.join.value} if one.join is not None else {}
        _print(line)

    def _note(self, publisher: str, subject: str, told: Judged, t_ns: int) -> None:
        if self._life.log is not None:
            instance = f"{self._life.name}:{subject}"
            self._life.log.write(
                [event_row(t_ns, self._name, instance, "tell", told, peer=publisher, machine=MACHINE, data=True)]
            )


def _print(line: dict[str, Any]) -> None:
    print(plain_json(line), flush=True)
