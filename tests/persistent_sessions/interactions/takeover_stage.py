"""Stage: owners of one session, the explorer's database, one writer, and messages between owners that wait.

A script is text.  A line that is not indented is an input, the indented lines below it are all that came of it; `#`
begins a comment.

    writers NAME ...         these are there, in place of the one; rows have the time of their commit
    publish WRITER MESSAGE   a publisher that has just come to this writer has a message stored; sent live it waits
    owner NAME TOKEN [OLD]   a client connects at NAME; its session is live at OLD
    live MESSAGE             the writer stores a message, and sends it to whoever is subscribed
    lag N                    from now on a replica shows all but the last N of what is stored
    appear                   it shows everything
    slow                     from now on commits are carried out only when they are asked for
    commit NAME              the commit of NAME is carried out
    deliver N                what was sent under the number #N arrives
    lose N                   it does not
    gone NAME                the process of NAME is gone: its host refuses in its place
    fire NAME TIMER          a timer of NAME is due

The writer shows its markers at once, the client acknowledges at once.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Ask, Send, Tell, name_of
from statemachines.persistent_sessions.message import Live, LiveMarker, MarkerWanted, Puback, Publish, Queued
from statemachines.persistent_sessions.request import DATABASE, CommitState, PutMarker, PutRows
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import STOPPED, ResumeRecord, ResumeSession
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.takeover_record import (
    BeginTakeover,
    EndTakeover,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.times import Times
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.persistent_sessions.database import Appear, DatabaseService

WRITER = "writer"


class Stage:
    """`play(line)` does what an input says and gives the lines of what came of it."""

    def __init__(self) -> None:
        self._database = DatabaseService((WRITER,), (), begun=1)
        self._tables = self._database.initial()
        self._owners: dict[str, ResumeRecord] = {}
        self._ways: dict[int, tuple[str, Any]] = {}
        self._sent = 0
        self._last = 0
        self._numbers = {WRITER: 0}
        self._slow = False
        self._commits: dict[str, CommitState] = {}
        self._lines: list[str] = []

    def play(self, line: str) -> list[str]:
        """Raises `ValueError` for an input that does not exist or does not fit."""
        word, *given = line.split()
        act = getattr(self, f"do_{word}", None)
        if act is None:
            raise ValueError(f"{line!r} is no input")
        self._lines = []
        try:
            act(*given)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{line!r} does not fit: {error!r}") from error
        return self._lines or ["nothing"]

    # -- inputs -------------------------------------------------------------------------------------------------

    def do_owner(self, name: str, token: str, old: str = "") -> None:
        self._owners[name] = ResumeRecord(name, "c", int(token), Times(), old)
        self._feed(name, ResumeSession())

    def do_writers(self, *names: str) -> None:
        self._database = DatabaseService(names, (), begun=1, stamps=True)
        self._tables = self._database.initial()
        self._numbers = dict.fromkeys(names, 0)

    def do_publish(self, writer: str, message: str) -> None:
        since_ns = self._tables.commits + 1
        self._numbers[writer] += 1
        row = Queued(self._numbers[writer], message, "t")
        self._ask(writer, PutRows(SESSION, writer, 1, (row,)))
        if self._tables.owner:
            live = Live(SESSION, writer, 1, replace(row, stored_ns=self._tables.commits), since_ns)
            self._sent += 1
            self._ways[self._sent] = (self._tables.owner, live)
            self._lines.append(f"#{self._sent} {writer} -> {self._tables.owner}: {message}")

    def do_live(self, message: str) -> None:
        self._last += 1
        row = Queued(self._last, message, "t")
        self._ask(WRITER, PutRows(SESSION, WRITER, 1, (row,)))
        self._feed(self._tables.owner, Live(SESSION, WRITER, 1, row))

    def do_lag(self, count: str) -> None:
        self._database.service.lag = int(count)

    def do_appear(self) -> None:
        for place, entry in enumerate(self._tables.shelves[0].entries):
            if not entry.visible:
                reaction = self._database.react(self._tables, Envelope("", DATABASE, Appear(WRITER, place)))
                assert reaction is not None
                self._tables = reaction.local

    def do_slow(self) -> None:
        self._slow = True

    def do_commit(self, name: str) -> None:
        self._ask(name, self._commits.pop(name))

    def do_deliver(self, number: str) -> None:
        to, message = self._ways.pop(int(number))
        if to in self._owners:
            self._feed(to, message)
        elif isinstance(message, BeginTakeover | EndTakeover):
            self._send(f"the host of {to}", message.to, TakeoverRefused(message.client, message.token))

    def do_lose(self, number: str) -> None:
        to, message = self._ways.pop(int(number))
        self._lines.append(f"lost: {name_of(type(message))} to {to}")

    def do_gone(self, name: str) -> None:
        del self._owners[name]

    def do_fire(self, name: str, timer: str) -> None:
        key = {"orphan": "", "poll": WRITER}.get(timer, self._owners[name].old)
        self._feed(name, RESUME.timer_registry()[timer](key))

    # -- what happens -------------------------------------------------------------------------------------------

    def _feed(self, name: str, event: Any) -> None:
        if name not in self._owners:
            return
        before = self._owners[name]
        step = RESUME.step(before, event, 0)
        self._owners[name] = step.record
        line = RESUME.lines[step.row]
        moved = "" if step.record.status is before.status else f" -> {step.record.status.value}"
        ignored = ", ignored" if line.kind == "ignore" else ""
        self._lines.append(f"{name} {name_of(type(event))}: {before.status.value}{moved}{ignored} [{line.clause}]")
        if step.record.status is STOPPED:
            del self._owners[name]
        for effect in step.effects:
            self._perform(name, effect)

    def _perform(self, name: str, effect: Any) -> None:
        match effect:
            case Send(writer, MarkerWanted(token=token, n=n)):
                k = (self._last if writer == WRITER else self._numbers[writer]) + 1
                self._ask(writer, PutMarker(SESSION, writer, 1, k, token, n))
                self._feed(name, LiveMarker(SESSION, writer, 1, k, token, n))
            case Send(_, Publish() as sent):
                self._lines.append(f"the client of {name} gets {sent.message}{' again' if sent.dup else ''}")
                self._feed(name, Puback(sent.packet))
            case Send(to, message):
                self._send(name, to, message)
            case Ask(_, CommitState() as asked) if self._slow:
                self._commits[name] = asked
            case Ask(_, request):
                self._ask(name, request)
            case Tell(event):
                self._lines.append(f"{name} is told {name_of(type(event))}{why(event)}")

    def _send(self, sender: str, to: str, message: Any) -> None:
        self._sent += 1
        self._ways[self._sent] = (to, message)
        rows = [row.message for one in getattr(message, "found", ()) for row in one.rows]
        brings = f" with {' '.join(rows) or 'nothing'}" if isinstance(message, TakeoverEnded) else ""
        self._lines.append(f"#{self._sent} {sender} -> {to}: {name_of(type(message))} {message.token}{brings}")

    def _ask(self, name: str, request: Any) -> None:
        self._tables, answers, _ = self._database.apply(self._tables, request)
        for answer in answers:
            self._feed(name, answer)


def why(event: Any) -> str:
    """The reason, where there is one."""
    return f" ({event.why})" if hasattr(event, "why") else ""


def perform(script: str) -> str:
    """The script with what really comes of its inputs; raises `ValueError` with the line of one that is wrong."""
    stage, out = Stage(), []
    for number, line in enumerate(script.splitlines(), 1):
        if line.startswith(" "):
            continue
        out.append(line)
        if line and not line.startswith("#"):
            try:
                out += [f"    {one}" for one in stage.play(line)]
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error
    return "\n".join((*out, ""))
