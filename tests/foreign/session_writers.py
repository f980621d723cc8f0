"""The writers of a session, each brought together with what the database has of it, and their rows merged by store
time: a part of session.py."""

from itertools import groupby
from operator import itemgetter

STARVED = ("behind", "draining")
LIVE = ("syncing", "normal")
AT_MARKER = ("waiting", "done")
BEYOND = 2**63
READ = ("new", "behind", "syncing", "finalizing", "fencing", "draining")


def contiguous(rows, taken):
    found = []
    for row in rows:
        if row["number"] == taken + len(found) + 1:
            found.append(row)
    return found


def gathered(places):
    epochs = {}
    for writer, epoch, row in places:
        epochs.setdefault((writer, epoch), {})[row["number"]] = row
    return [
        {"writer": writer, "epoch": epoch, "rows": [rows[number] for number in sorted(rows)], "markers": []}
        for (writer, epoch), rows in sorted(epochs.items())
    ]


class Flow:
    def __init__(self, writer, epoch, taken):
        self.writer, self.epoch, self.taken, self.state = writer, epoch, taken, "new"
        self.n = self.k = self.heard = self.below = self.complete = 0
        self.seen = self.gone = False
        self.buffer, self.blocked = [], []

    def next_live(self):
        return self.k + len(self.buffer)

    def forget(self):
        self.n += 1
        self.k = self.heard = 0
        self.seen, self.buffer = False, []


class SessionWriters:
    """Needs what a session does, and its state."""

    def misses(self, flow, bound, *states):
        others = (one for one in self.flows.values() if one is not flow and one.state not in states)
        return self.known < bound or any(one.complete < bound for one in others)

    def take_rows(self, flow, rows, since=BEYOND):
        rows = contiguous(rows, flow.taken)
        if not rows:
            return rows
        flow.taken, flow.complete = rows[-1]["number"], max(flow.complete, rows[-1]["stored_ns"])
        bounded = [(flow.epoch, min(since, row["stored_ns"]), row) for row in rows]
        if self.blocked_flows() or self.misses(flow, bounded[-1][1]):
            flow.blocked += bounded
        else:
            self.add_take(flow.writer, flow.epoch, rows)
        return rows

    def take_shown(self, flow, found, complete, below=BEYOND):
        its = [(one["epoch"], row) for one in found if one["writer"] == flow.writer for row in one["rows"]]
        rows = self.take_rows(flow, [row for epoch, row in its if epoch == flow.epoch and row["number"] < below])
        left = [row["stored_ns"] for epoch, row in its if (epoch, row["number"]) > (flow.epoch, flow.taken)]
        flow.complete = max(flow.complete, min([complete, *left]))
        return rows

    def blocked_flows(self):
        return [flow for flow in self.flows.values() if flow.blocked]

    def merge(self):
        freed = []
        while free := [flow for flow in self.blocked_flows() if not self.misses(flow, flow.blocked[0][1])]:
            first = min(free, key=lambda flow: (flow.blocked[0][2]["stored_ns"], flow.writer))
            freed.append((first.writer, *first.blocked.pop(0)))
        for (writer, epoch), run in groupby(freed, itemgetter(0, 1)):
            self.add_take(writer, epoch, [row for *_, row in run])
        if self.needs_read() and not self.reads:
            self.reads = True
            self.read_all()

    def needs_read(self):
        is_blocked = any(self.misses(flow, flow.blocked[0][1], *READ) for flow in self.blocked_flows())
        return is_blocked and not self.is_crowded()

    def read_all(self):
        self.ask("read_pending", session=self.session, writer="", rows=self.page, behind=[0, 0])

    def catch_up(self, event):
        waited, found = self.waits_with_room(), event["found"]
        places = {flow.writer: (flow.epoch, flow.taken) for flow in self.flows.values()}
        self.known = max(self.known, event["seen_ns"])
        for writer in sorted({one["writer"] for one in found if one["rows"]} - set(self.flows)):
            self.add_flow(writer)
        for writer, flow in sorted(self.flows.items()):
            newest = max((one["epoch"] for one in found if one["writer"] == writer and one["rows"]), default=0)
            if flow.state in AT_MARKER and newest > flow.epoch:
                self.fence(flow, newest, False)
            elif flow.state in AT_MARKER:
                self.take_shown(flow, found, event["complete_ns"])
            self.merge()
        if self.needs_read() and places == {one.writer: (one.epoch, one.taken) for one in self.flows.values()}:
            self.set_timer("catch_up", "poll")
        else:
            self.reads = False
        self.settle(waited)
        self.finish()

    def on_timer_catch_up(self):
        if self.reads:
            self.read_all()

    def is_crowded_for(self, flow):
        return self.is_crowded() or len(flow.blocked) >= self.times["queue"]

    def settle(self, waited):
        self.merge()
        settled = [writer for writer in sorted(self.flows) if self.flows[writer].state == "finalizing"]
        for writer in (*settled, *sorted(self.flows)):
            flow = self.flows[writer]
            if flow.state == "finalizing" and not self.committing:
                if self.is_crowded_for(flow):
                    self.starve(flow, flow.next_live())
                else:
                    rows, flow.buffer = flow.buffer, []
                    self.enter_flow(flow, "done")
                    self.take_rows(flow, rows)
                self.merge()
            elif self.is_starved(flow) and self.room() >= self.page:
                self.read_on(flow, self.page)
        if self.waits_with_room() and not waited:
            self.set_timer("lull", "repeat")

    def finish(self):
        if self.status == "syncing" and self.is_synchronised():
            self.enter("normal")
            self.tell("resumed", session=self.session)

    def on_timer_lull(self):
        rows = self.room() if self.status in LIVE else 0
        for writer in sorted(self.flows):
            if rows and self.is_starved(self.flows[writer]):
                self.read_on(self.flows[writer], rows)

    def read_on(self, flow, rows):
        if flow.state == "behind":
            self.enter_flow(flow, "syncing")
            self.read(flow, rows)
        else:
            self.enter_flow(flow, "fencing")
            self.ask_fence(flow, flow.below, rows)

    def read(self, flow, rows):
        behind = [flow.epoch, flow.taken]
        self.ask("read_pending", session=self.session, writer=flow.writer, rows=rows, behind=behind)

    def ask_fence(self, flow, below, rows):
        place = {"behind": [flow.epoch, flow.taken], "below": below, "rows": rows}
        self.ask("fence", session=self.session, writer=flow.writer, token=self.token, n=flow.n, **place)

    def ask_marker(self, flow):
        flow.forget()
        self.say_marker(flow)

    def say_marker(self, flow):
        self.send(flow.writer, "marker_wanted", session=self.session, to=self.id, token=self.token, n=flow.n)

    def ask_fresh(self, flow):
        self.enter_flow(flow, "waiting")
        self.set_timer("marker " + flow.writer, "marker")
        self.set_timer("repeat " + flow.writer, "repeat")
        self.ask_marker(flow)
        self.merge()

    def fence(self, flow, below, gone):
        flow.forget()
        flow.gone = gone
        self.enter_flow(flow, "fencing")
        self.ask_fence(flow, below, self.page)

    def starve(self, flow, number):
        flow.k, flow.seen, flow.buffer = number, True, []
        self.enter_flow(flow, "behind")

    def make_flow(self, writer):
        flow = self.flows[writer] = Flow(writer, *self.state["taken"].get(writer, (1, 0)))
        return flow

    def begin_flow(self, flow):
        self.enter_flow(flow, "waiting")
        self.ask_marker(flow)
        self.merge()

    def add_flow(self, writer):
        self.begin_flow(self.make_flow(writer))

    def flow_of(self, event, adds=False):
        if self.status not in LIVE:
            return None
        flow = self.flows.get(event["writer"])
        if flow is None and adds:
            self.add_flow(event["writer"])
        return flow

    def on_live(self, event):
        epoch, row = event["epoch"], event["queued"]
        number = row["number"]
        if self.status == "yielding" and sum(len(one["rows"]) for one in self.pending) < self.times["handover"]:
            self.pending = gathered([*self.places(), (event["writer"], epoch, row)])
        flow = self.flow_of(event, adds=True)
        if flow is None or self.is_other_epoch(flow, epoch):
            return
        waited, is_full = self.waits_with_room(), len(flow.buffer) >= self.times["resume_buffer"]
        if flow.state == "waiting":
            flow.heard = max(flow.heard, number)
        elif flow.state == "done":
            if number == flow.taken + 1 and self.is_crowded_for(flow):
                self.starve(flow, number)
                flow.buffer.append(row)
            elif number == flow.taken + 1:
                self.take_rows(flow, [row], event["since_ns"])
            elif number > flow.taken:
                self.ask_fresh(flow)
        elif number == flow.next_live():
            if is_full:
                self.starve(flow, number)
            flow.buffer.append(row)
        elif number > flow.next_live():
            self.ask_fresh(flow)
        self.settle(waited)

    def is_other_epoch(self, flow, epoch):
        if flow.state in ("fencing", "draining"):
            if epoch > flow.epoch:
                flow.heard = max(flow.heard, epoch)
            return True
        if epoch > flow.epoch:
            waited = self.waits_with_room()
            self.fence(flow, epoch, False)
            self.settle(waited)
        return epoch != flow.epoch

    def on_live_marker(self, event):
        flow = self.flow_of(event)
        if flow is None or self.is_other_epoch(flow, event["epoch"]):
            return
        if flow.state == "waiting" and (event["token"], event["n"]) == (self.token, flow.n):
            if event["k"] > max(flow.heard, flow.taken):
                flow.k = event["k"]
                self.enter_flow(flow, "syncing")
                self.read(flow, self.page)
            else:
                self.ask_fresh(flow)

    def on_polled(self, event):
        flow = self.flow_of(event)
        if flow is None:
            return
        waited = self.waits_with_room()
        found = [one for one in event["found"] if one["epoch"] == flow.epoch]
        is_shown = any([self.token, flow.n] in one["markers"] for one in found)
        if flow.state == "waiting":
            flow.seen = flow.seen or is_shown
        elif flow.state == "syncing" and self.is_crowded_for(flow):
            self.starve(flow, flow.next_live())
        elif flow.state == "syncing":
            rows = self.take_shown(flow, event["found"], event["complete_ns"], flow.k)
            flow.seen = flow.seen or is_shown
            if flow.seen and flow.taken == flow.k - 1:
                self.enter_flow(flow, "finalizing")
            elif rows:
                self.enter_flow(flow, "behind")
            else:
                self.set_timer("poll " + flow.writer, "poll")
        self.settle(waited)
        self.finish()

    def on_fenced_rows(self, event):
        flow = self.flow_of(event)
        if flow is None or flow.state != "fencing" or event["n"] != flow.n:
            return
        waited, found, more, complete = self.waits_with_room(), event["found"], event["more"], event["complete_ns"]
        if found and self.is_crowded_for(flow):
            found, more, complete = [], True, 0
        for epoch in sorted({flow.epoch, *(one["epoch"] for one in found if one["epoch"] > flow.epoch)}):
            flow.taken = flow.taken if epoch == flow.epoch else 0
            flow.epoch = epoch
            self.take_shown(flow, found, complete)
        flow.below = event["below"]
        if more:
            self.enter_flow(flow, "draining")
        else:
            stays = flow.gone and flow.heard < event["below"]
            flow.epoch, flow.taken, flow.heard, flow.below = event["below"], 0, 0, 0
            self.enter_flow(flow, "done" if stays else "waiting")
            if not stays:
                flow.gone = False
                self.ask_marker(flow)
        self.settle(waited)
        self.finish()

    def on_writer_up(self, event):
        flow = self.flow_of(event, adds=True)
        if flow and flow.state in ("fencing", "draining"):
            flow.gone = False
        elif flow and flow.state == "done":
            self.ask_fresh(flow)

    def on_writer_down(self, event):
        waited = self.waits_with_room() if self.state else False
        self.flow_of(event, adds=True)
        if self.status in LIVE:
            self.fence(self.flows[event["writer"]], 0, True)
            self.settle(waited)

    def on_link_lost(self, event):
        flow = self.flow_of(event, adds=True)
        if flow and flow.state in ("fencing", "draining"):
            flow.gone = False
        elif flow and flow.state == "waiting":
            self.ask_marker(flow)
        elif flow:
            self.ask_fresh(flow)

    def find_flow(self, writer, *states):
        flow = self.flows.get(writer) if self.status in LIVE else None
        return flow if flow and flow.state in states else None

    def on_timer_repeat(self, writer):
        if flow := self.find_flow(writer, "waiting"):
            self.set_timer("repeat " + writer, "repeat")
            self.say_marker(flow)

    def on_timer_poll(self, writer):
        if flow := self.find_flow(writer, "syncing"):
            self.read(flow, self.page)

    def on_timer_marker(self, writer):
        if flow := self.find_flow(writer, "waiting", "syncing"):
            self.fence(flow, 0, True)
