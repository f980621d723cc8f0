"""A story of one session, row by row, as nodes would log it: what is pending, what is kept behind a marker, a node that
dies, a writer that is fenced, a takeover.  Tests tamper with it."""

import pyarrow as pa

from statemachines.trace.parquet import SCHEMA
from statemachines.trace.row import TRACE
from statemachines_reports.columns import NEEDED, Columns

SESSION = "tablet@a~1/1"
WRITER, FIRST, SECOND, THIRD = "w~1/1", "a~1/1", "b~1/1", "a~2/1"
NEXT_WRITER = "v~1/1"
"""Of the node to which a publisher moves."""

MS = 1_000_000


class Story:
    """Rows, one after the other, a millisecond apart."""

    def __init__(self):
        self.rows = []
        self.writer = WRITER

    def row(self, instance, kind, event, machine="", source="", dest="", **cells):
        defaults = {column.name: column.default for column in TRACE[2:] if column.name in
                    ("row", "peer", "msg", "key", "term", "grant", "first", "last", "data")}  # fmt: skip
        place = {"run": 0, "seq": 0, "t_ns": len(self.rows) * MS, "node": instance.partition("~")[0]}
        full = f"persistent_sessions/{machine}" if machine else ""
        said = {"instance": instance, "machine": full, "kind": kind, "event": event, "source": source, "dest": dest}
        self.rows.append({**place, **defaults, **said, **cells})

    # -- the writer -------------------------------------------------------------------------------------------------

    def write(self, event, source="storing", dest="idle", **cells):
        self.row(self.writer, "step", event, "writer", source, dest, **cells)

    def begin_epoch(self, epoch):
        self.row(self.writer, "ask", "begin_epoch", key=SESSION)
        self.write("epoch_begun", "beginning", "idle", term=epoch)

    def hand(self, message, qos=1, until=0, since=0):
        self.write("hand", "idle", "storing", key=message, grant=qos, last=until, first=since)

    def put(self, epoch, number, message, last=None):
        self.row(self.writer, "ask", "put_rows", key=message, term=epoch, first=number, last=last or number)

    def store(self, epoch, number, message, qos=1, until=0, since=0, **cells):
        self.hand(message, qos, until, since)
        self.put(epoch, number, message)
        self.write("row_stored", **cells)

    # -- an owner ---------------------------------------------------------------------------------------------------

    def resume(self, owner, event, source, dest, **cells):
        self.row(owner, "step", event, "session_resume", source, dest, **cells)

    def load(self, owner, token, dest="reading", time=0):
        self.resume(owner, "resume_session", "new", "loading")
        self.row(owner, "ask", "load_session", key="tablet", term=token)
        self.resume(owner, "session_loaded", "loading", dest, key=SESSION, first=time)

    def flow(self, owner, event, source, dest, **cells):
        self.row(f"{owner}:w", "step", event, "writer_flow", source, dest, **cells)

    def take(self, owner, epoch, first, last, lost=0):
        self.row(f"{owner}:{SESSION}", "step", "take", "delivery", "ready", "committing", key=self.writer[0],
                 term=epoch, grant=lost, first=first, last=last)  # fmt: skip

    def ask_commit(self, owner, token):
        self.row(owner, "ask", "commit_state", key=SESSION, term=token)

    def commit(self, owner, token, epoch, *numbers, time=0):
        self.ask_commit(owner, token)
        self.row(f"{owner}:{SESSION}", "step", "state_committed", "delivery", "committing", "ready", first=time)
        for number in numbers:
            self.row(owner, "ask", "mark_delivered", key=self.writer[0], term=epoch, first=number)

    def pass_over(self, owner, message, until, time, qos=1):
        self.row(owner, "tell", "message_expired", key=message, grant=qos, first=until, last=time)

    def send(self, owner, message, packet, again=0):
        self.row(owner, "send", "publish", key=message, grant=again, first=packet)


def told():
    """The story; m1 to m10, and q0 of QoS 0."""
    story = Story()
    story.load(FIRST, 1)
    story.begin_epoch(1)
    story.write("live_known", key=FIRST, term=1)
    for number in (1, 2, 3):
        story.store(1, number, f"m{number}")
    story.resume(FIRST, "subscribed_live", "subscribing", "syncing")
    story.flow(FIRST, "begin", "new", "waiting")
    story.flow(FIRST, "live", "waiting", "waiting", key="w", term=1, first=3)
    story.flow(FIRST, "live_marker", "waiting", "syncing", key="w", term=1, first=4)
    story.flow(FIRST, "polled", "syncing", "finalizing", key="w")
    story.take(FIRST, 1, 1, 3)
    for number in (4, 5):
        story.store(1, number, f"m{number}")
        story.flow(FIRST, "live", "finalizing", "finalizing", key="w", term=1, first=number)
    story.commit(FIRST, 1, 1, 1, 2, 3)
    for number in (1, 2, 3):
        story.send(FIRST, f"m{number}", number)
    story.flow(FIRST, "settled", "finalizing", "done")
    story.take(FIRST, 1, 4, 5)
    story.resume(FIRST, "state_committed", "syncing", "normal")
    story.commit(FIRST, 1, 1, 4, 5)
    story.send(FIRST, "m4", 4)
    story.send(FIRST, "m5", 5)
    story.store(1, 6, "q0", qos=0)
    story.resume(FIRST, "live", "normal", "normal", key="w", term=1, first=6)
    story.flow(FIRST, "live", "done", "done", key="w", term=1, first=6)
    story.take(FIRST, 1, 6, 6)
    story.ask_commit(FIRST, 1)  # it is committed, and nobody hears of that: the node dies, q0 is gone
    story.row("a~1", "fault", "kill")
    story.store(1, 7, "m7")
    second(story)
    takeover(story)
    for number, row in enumerate(story.rows):
        row["seq"] = number
    return story.rows


def told_of_age():
    """m1 and q2 are over when they are committed, m3 and m4 are not; m5 is, and its owner dies without a word."""
    story = Story()
    story.load(FIRST, 1)
    story.begin_epoch(1)
    for number, (message, until) in enumerate({"m1": 50, "q2": 40, "m3": 51, "m4": 0}.items(), 1):
        story.store(1, number, message, qos=int(message != "q2"), until=until, last=number)
    story.take(FIRST, 1, 1, 4)
    story.commit(FIRST, 1, 1, 1, 2, 3, 4, time=50)
    story.pass_over(FIRST, "m1", 50, 50)
    story.pass_over(FIRST, "q2", 40, 50, qos=0)
    story.send(FIRST, "m3", 1)
    story.send(FIRST, "m4", 2)
    story.store(1, 5, "m5", until=60, last=5)
    story.take(FIRST, 1, 5, 5)
    story.ask_commit(FIRST, 1)
    story.row("a~1", "fault", "kill")
    story.load(SECOND, 2, time=60)
    story.send(SECOND, "m3", 1, again=1)
    story.store(1, 6, "m6", last=61)
    story.take(SECOND, 1, 6, 6)
    story.commit(SECOND, 2, 1, 6, time=70)
    story.send(SECOND, "m6", 3)
    for number, row in enumerate(story.rows):
        row["seq"] = number
    return story.rows


def told_of_a_move():
    """A publisher stores m1 and m2 over w, moves after time 20, and stores m3 over v."""
    story = Story()
    story.load(FIRST, 1)
    for story.writer, since, messages in ((WRITER, 0, {"m1": 10, "m2": 20}), (NEXT_WRITER, 21, {"m3": 30})):
        story.begin_epoch(1)
        for number, (message, stored) in enumerate(messages.items(), 1):
            story.store(1, number, message, since=since, last=stored)
        story.take(FIRST, 1, 1, len(messages))
        story.commit(FIRST, 1, 1, *range(1, len(messages) + 1))
    for packet in (1, 2, 3):
        story.send(FIRST, f"m{packet}", packet)
    for number, row in enumerate(story.rows):
        row["seq"] = number
    return story.rows


def second(story):
    """On another node; its writer is silent, and fenced."""
    story.load(SECOND, 2)
    story.send(SECOND, "m5", 5, again=1)
    story.resume(SECOND, "subscribed_live", "subscribing", "syncing")
    story.take(SECOND, 1, 7, 7)
    story.commit(SECOND, 2, 1, 7)
    story.send(SECOND, "m7", 6)
    story.store(1, 8, "m8")
    story.flow(SECOND, "begin", "new", "waiting")
    story.flow(SECOND, "marker_timeout", "waiting", "fencing")
    story.row(SECOND, "ask", "fence", key="w", term=0)
    story.hand("m9")
    story.put(1, 9, "m9")
    story.flow(SECOND, "fenced_rows", "fencing", "waiting", key="w", term=2)
    story.take(SECOND, 1, 8, 8)
    story.write("row_fenced", "storing", "storing", term=2)
    story.put(2, 1, "m9")
    story.write("row_stored")
    story.commit(SECOND, 2, 1, 8)
    story.send(SECOND, "m8", 7)
    story.flow(SECOND, "live_marker", "waiting", "syncing", key="w", term=2, first=2)
    story.flow(SECOND, "polled", "syncing", "finalizing", key="w")
    story.take(SECOND, 2, 1, 1)
    story.commit(SECOND, 2, 2, 1)
    story.send(SECOND, "m9", 8)
    story.flow(SECOND, "settled", "finalizing", "done")
    story.resume(SECOND, "state_committed", "syncing", "normal")


def takeover(story):
    """While it is live at the second owner, a third comes."""
    story.load(THIRD, 3, dest="taking")
    story.resume(SECOND, "begin_takeover", "normal", "yielding")
    story.resume(THIRD, "takeover_begun", "taking", "subscribing")
    story.store(2, 2, "m10")
    story.resume(THIRD, "subscribed_live", "subscribing", "syncing")
    story.row(THIRD, "tell", "taken_over", "session_resume", key="handed")
    story.flow(THIRD, "begin", "new", "waiting")
    story.flow(THIRD, "live_marker", "waiting", "syncing", key="w", term=2, first=3)
    story.flow(THIRD, "handed", "syncing", "syncing")
    story.take(THIRD, 2, 2, 2)
    story.commit(THIRD, 3, 2, 2)
    story.send(THIRD, "m10", 9)
    story.flow(THIRD, "polled", "syncing", "finalizing", key="w")
    story.flow(THIRD, "settled", "finalizing", "done")
    story.resume(THIRD, "polled", "syncing", "normal")


def columns_of(rows):
    """Rows as a segment has them."""
    for number, row in enumerate(rows):
        row["seq"] = number
    return Columns(pa.Table.from_pylist(rows, schema=SCHEMA).select(NEEDED))
