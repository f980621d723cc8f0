"""The owner of a session in plain Python: nothing of gapless is imported; docs/test_your_implementation.md is all that
it knows."""

from plain_lines import Instance, serve
from session_state import SessionState
from session_writers import BEYOND, LIVE, SessionWriters, gathered

COUNT_MAX = 2**62
RESUMING = ("loading", "taking", "reading", "subscribing", "syncing")


def bounded(found, limit):
    kept = []
    for one in found:
        rows = [row for row in one["rows"] if 0 < one["epoch"] < COUNT_MAX and 0 < row["number"] < COUNT_MAX][:limit]
        limit -= len(rows)
        if rows:
            kept.append({**one, "rows": rows, "markers": []})
    return kept


class Session(SessionState, SessionWriters, Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.id, self.client, self.token, self.old = init["id"], init["client"], init["token"], init["old"]
        self.times = init["times"]
        self.most = self.times["receive_maximum"]
        self.page = max(1, self.most // 2)
        self.status, self.session, self.claim = "new", "", 0
        self.state, self.takeover = None, ""
        self.pending, self.flows, self.complete = [], {}, 0
        self.known, self.reads = 0, False
        self.committing, self.outgoing, self.marks, self.inbox = False, [], [], []

    # -- what it does

    def ask(self, kind, **fields):
        super().ask("database", kind, **fields)

    def set_timer(self, name, period):
        super().set_timer(name, self.times[period + "_ms"])

    def keep_timer(self, name, period, had, has):
        if has and not had:
            self.set_timer(name, period)
        elif had and not has:
            self.cancel(name)

    def enter(self, status):
        old, self.status = self.status, status
        self.keep_timer("resume", "resume", old in RESUMING, status in RESUMING)
        self.keep_timer("orphan", "orphan", old == "yielding", status == "yielding")
        if old in LIVE and status not in LIVE:
            self.cancel("lull", "catch_up")

    def enter_takeover(self, state):
        old, self.takeover = self.takeover, state
        self.keep_timer("again", "repeat", old in ("beginning", "ending"), False)
        self.keep_timer("again", "repeat", False, state in ("beginning", "ending"))
        self.keep_timer("begin", "begin", old == "beginning", state == "beginning")
        self.keep_timer("end", "end", old in ("ending", "confirming"), state in ("ending", "confirming"))

    def enter_flow(self, flow, state):
        old, flow.state = flow.state, state
        self.keep_timer("repeat " + flow.writer, "repeat", old == "waiting", state == "waiting")
        had, has = (one in ("waiting", "syncing") for one in (old, state))
        self.keep_timer("marker " + flow.writer, "marker", had, has)
        if old == "syncing" != state:
            self.keep_timer("poll " + flow.writer, "poll", True, False)

    def end(self, why, to=None):
        for flow in self.flows.values():
            self.enter_flow(flow, "over")
        self.enter_takeover("")
        self.ask("unsubscribe_live", session=self.session, token=self.token)
        if to is not None:
            self.send(to, "takeover_ended", client=self.client, token=self.claim, found=self.pending)
        self.tell("resume_ended", session=self.session, why=why)
        self.stop()

    def stop(self):
        self.enter("stopped")
        super().stop()

    # -- what it is told

    def on_resume_session(self, event):
        self.enter("loading")
        self.ask_load()

    def ask_load(self):
        self.ask("load_session", client=self.client, owner=self.id, token=self.token)

    def on_session_absent(self, event):
        if self.status == "loading":
            self.tell("resume_ended", session="", why="absent")
            self.stop()

    def on_session_loaded(self, event):
        if self.status != "loading":
            return
        self.load(event)
        if self.old not in ("", self.id):
            self.enter("taking")
            self.enter_takeover("beginning")
            self.say_takeover("begin_takeover")
        else:
            self.enter("reading")
            self.resend()
            self.read_all()

    def on_pending_read(self, event):
        if self.status == "reading":
            self.pending, self.complete = event["found"], event["complete_ns"]
            self.subscribe()
        elif self.status in LIVE and self.reads:
            self.catch_up(event)

    def subscribe(self):
        self.enter("subscribing")
        self.ask("subscribe_live", session=self.session, owner=self.id, token=self.token)

    def on_subscribed_live(self, event):
        if self.status != "subscribing":
            return
        writers, self.known = sorted({*event["writers"], *event["gone"]}), event["seen_ns"]
        if self.takeover == "begun":
            self.resend()
            self.enter_takeover("ending")
            self.say_takeover("end_takeover")
        self.enter("syncing")
        found, complete = ([], 0) if self.is_crowded() else (self.pending, self.complete)
        for flow in [self.make_flow(writer) for writer in writers]:
            self.take_shown(flow, found, complete)
        self.pending, self.complete = [], 0
        self.merge()
        for writer in writers:
            self.begin_flow(self.flows[writer])
            if writer not in event["writers"]:
                self.fence(self.flows[writer], 0, True)
        self.finish()

    def on_connection_lost(self, event):
        if self.status != "yielding":
            self.end("lost")

    def on_discarded(self, event):
        self.end("discarded")

    def on_timer_resume(self):
        if self.status in RESUMING:
            self.end("timeout")

    def on_not_owner(self, event):
        if self.status in LIVE:
            self.fall_silent()
        elif self.status != "yielding":
            self.end("superseded")

    # -- a takeover from the owner of before

    def say_takeover(self, kind):
        self.send(self.old, kind, client=self.client, to=self.id, token=self.token)

    def is_ours(self, event):
        return (event["client"], event["token"]) == (self.client, self.token)

    def end_takeover(self, why):
        self.enter_takeover("")
        self.tell("taken_over", session=self.session, old=self.old, why=why)
        if self.status == "taking":
            self.session, self.old, self.state = "", "", None
            self.enter("loading")
            self.ask_load()

    def on_takeover_begun(self, event):
        if self.takeover == "beginning" and self.is_ours(event):
            self.enter_takeover("begun")
            self.subscribe()

    def on_takeover_refused(self, event):
        if self.takeover in ("beginning", "ending") and self.is_ours(event):
            self.end_takeover("refused")

    def on_takeover_ended(self, event):
        if self.takeover == "ending" and self.is_ours(event):
            found = bounded(event["found"], self.times["handover"])
            if found:
                self.enter_takeover("confirming")
                self.ask("confirm_rows", session=self.session, token=self.token, found=found)
            else:
                self.end_takeover("handed")

    def on_rows_confirmed(self, event):
        if self.takeover == "confirming":
            for flow in (self.flows[writer] for writer in sorted(self.flows)):
                if flow.state in ("waiting", "behind", "syncing"):
                    self.take_shown(flow, event["found"], 0, flow.k or BEYOND)
                    self.merge()
            self.end_takeover("handed")

    def on_timer_again(self):
        if self.takeover in ("beginning", "ending"):
            self.set_timer("again", "repeat")
            self.say_takeover("begin_takeover" if self.takeover == "beginning" else "end_takeover")

    def on_timer_begin(self):
        if self.takeover == "beginning":
            self.end_takeover("silent")

    def on_timer_end(self):
        if self.takeover in ("ending", "confirming"):
            self.end_takeover("silent")

    # -- owners that come after

    def places(self):
        takes = [*self.marks, *(change for kind, change in self.inbox if kind == "take")]
        blocked = [(flow.writer, epoch, row) for flow in self.flows.values() for epoch, _, row in flow.blocked]
        buffers = [(flow.writer, flow.epoch, row) for flow in self.flows.values() for row in flow.buffer]
        taken = [(one["writer"], one["epoch"], row) for one in (*self.pending, *takes) for row in one["rows"]]
        return taken + blocked + buffers

    def fall_silent(self):
        self.pending = bounded(gathered(self.places()), self.times["handover"])
        for flow in self.flows.values():
            self.enter_flow(flow, "over")
        self.flows, self.marks, self.inbox, self.reads = {}, [], [], False
        self.enter_takeover("")
        self.enter("yielding")
        self.tell("yielded", session=self.session)

    def on_begin_takeover(self, event):
        client, token = event["client"], event["token"]
        if client == self.client and token > self.token and self.status in (*RESUMING, "normal"):
            self.fall_silent()
        elif client == self.client and token > max(self.token, self.claim) and self.status == "yielding":
            self.set_timer("orphan", "orphan")
        elif (client, token, self.status) != (self.client, self.claim, "yielding"):
            self.send(event["to"], "takeover_refused", client=client, token=token)
            return
        self.claim = token
        self.send(event["to"], "takeover_begun", client=client, token=token)

    def on_end_takeover(self, event):
        if (event["client"], event["token"], self.status) == (self.client, self.claim, "yielding"):
            self.end("taken over", event["to"])
        else:
            self.send(event["to"], "takeover_refused", client=event["client"], token=event["token"])

    def on_timer_orphan(self):
        if self.status == "yielding":
            self.end("orphaned")


serve(Session)
