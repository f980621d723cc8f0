"""Turn: what becomes of one event in a process: routes are followed until parties have nothing left to tell each other.

What a party tells the process is taken at once; what the process feeds waits in a queue, in order.  Nothing that leaves
the process is answered inside a turn.  `ProcessRunner` takes its steps with live nodes; the explorer takes the same
turns with values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from statemachines.kernel.effect import Begin, Effect, Feed, Forget, Send, SendAs, Stop, Tell
from statemachines.kernel.errors import GaplessError
from statemachines.kernel.event import Event, Message
from statemachines.kernel.process import APPLICATION, OUTSIDE, PROCESS, Arrived, Departing, EventRoute, LookAt, Process

Leaving = list[tuple[str, Effect]]
"""What leaves the process: each effect with its party, in order."""

Fed = list[tuple[str, Event]]
"""Events for parties of the process, or for itself."""


class ProcessTurn(ABC):
    """Base of what takes the turns of a process; `id` is that of the process."""

    def __init__(self, process: Process[Any], life: str) -> None:
        self.process = process
        self.id = life
        self._table = process.table
        self._diverts = process.diverts

    # -- how it is stepped --------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def record(self) -> Any:
        """What the process knows."""

    @abstractmethod
    def kind_of(self, party: str) -> str:
        """The kind of a party that lives ("": there is none)."""

    @abstractmethod
    def record_of(self, party: str) -> Any:
        """What a party that lives knows."""

    @abstractmethod
    def take(self, party: str, event: Event, now_ns: int) -> Iterable[Effect]:
        """A step of a party that lives, or of the process; its timers stay with it."""

    @abstractmethod
    def end_overdue(self, now_ns: int) -> Iterable[Effect]:
        """Steps of the process for what is over before anything else is taken."""

    @abstractmethod
    def begin(self, kind: str, party: str, record: Any, now_ns: int) -> None:
        """A party begins."""

    @abstractmethod
    def remove(self, party: str) -> None:
        """A party is gone, with its timers."""

    # -- a turn -------------------------------------------------------------------------------------------------

    def event_for(self, sender: str, to: str, message: Message) -> tuple[str, Event]:
        """Who takes a message that arrives, and as what."""
        for route in self._table.get((OUTSIDE, type(message)), ()):
            if route.when is None or route.when(self.record, Arrived(sender, to, message)):
                target = self.process.target(route, self.id, message, to)
                if target != self.id and self.kind_of(target):
                    return target, message
                break
        return self.id, Arrived(sender, to, message)

    def _run(self, events: Iterable[tuple[str, Event]], now_ns: int, out: Leaving) -> None:
        """Every event is taken, and what parties tell each other because of it."""
        queue = deque(events)
        while queue:
            party, event = queue.popleft()
            if not self.kind_of(party):
                continue
            if party == self.id and isinstance(event, LookAt):
                if not self.kind_of(event.party):
                    continue
                event = self._look(event)
            queue.extend(self._sort_out(party, self.take(party, event, now_ns), now_ns, out))

    def _look(self, event: LookAt) -> LookAt:
        """The event with what its party shows."""
        kind = self.kind_of(event.party)
        view = self.process.kinds[kind].view
        if view is None:
            raise GaplessError(f"{self.process.name}: looks at a {kind}, which shows nothing; give the kind a view")
        return replace(event, seen=view(self.record_of(event.party)))

    def _sort_out(self, party: str, effects: Iterable[Effect], now_ns: int, out: Leaving) -> Fed:
        """What leaves the process goes to `out`; what is for parties of it comes back."""
        kind = self.kind_of(party)
        if kind == PROCESS:
            return self._decide(effects, now_ns, out)
        fed: Fed = []
        diverts = self._diverts
        for effect in effects:
            what = type(effect)
            if what is Send:
                if diverts is None or not diverts(self.record, effect.message):  # type: ignore[union-attr]
                    out.append((party, effect))
                else:
                    fed += self._divert(party, effect, now_ns, out)  # type: ignore[arg-type]
            elif what is Tell:
                event = effect.event  # type: ignore[union-attr]
                routes = self._table.get((kind, type(event)))
                if routes is None:
                    out.append((party, effect))
                else:
                    fed += self._follow(routes, party, event, now_ns, out)
            elif what is Stop:
                self.remove(party)
            else:
                out.append((party, effect))
        return fed

    def _follow(self, routes: tuple[EventRoute, ...], party: str, event: Event, now_ns: int, out: Leaving) -> Fed:
        """A `Tell` goes where the first route leads whose guard holds; without one, to the application."""
        fed: Fed = []
        for route in routes:
            if route.when is not None and not route.when(self.record, event):
                continue
            if route.to == APPLICATION:
                break
            changed = event if route.change is None else route.change(party, event)
            if route.to == PROCESS:
                fed = self._decide(self.take(self.id, changed, now_ns), now_ns, out)
            else:
                fed = [(self.process.target(route, self.id, event, kind=self.kind_of(party), party=party), changed)]
            if not route.copied:
                return fed
            break
        out.append((party, Tell(event)))
        return fed

    def _divert(self, party: str, effect: Send, now_ns: int, out: Leaving) -> Fed:
        """The process decides how a message goes, unless what it knew of that is over by now."""
        fed = self._decide(self.end_overdue(now_ns), now_ns, out)
        if self._diverts is not None and self._diverts(self.record, effect.message):
            said = Departing(party, effect.to, effect.message)
            return fed + self._decide(self.take(self.id, said, now_ns), now_ns, out)
        out.append((party, effect))
        return fed

    def _decide(self, effects: Iterable[Effect], now_ns: int, out: Leaving) -> Fed:
        """What the process wants done."""
        fed: Fed = []
        for effect in effects:
            match effect:
                case Feed(party, event):
                    fed.append((party, event))
                case Begin(party, kind, record):
                    self.begin(kind, party, record, now_ns)
                case Forget(party):
                    self.remove(party)
                case SendAs(to, message, speaker):
                    out.append((speaker, Send(to, message)))
                case Stop():
                    self.remove(self.id)
                case _:
                    out.append((self.id, effect))
        return fed
