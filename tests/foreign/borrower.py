"""A Borrower in plain Python: nothing of gapless is imported; docs/test_your_implementation.md is all that it knows."""

from plain_lines import MS, Instance, serve

END_OF_STREAM = 2**63 - 1


class Stream:
    def __init__(self, grant):
        self.grant = grant["grant"]
        self.progress = grant["progress"]
        self.final = False
        self.finishing = False
        self.passed_on = {"failed": grant["failed"], "in_hand": False, "acked": grant["acked"], "reason": ""}


class Borrower(Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.id = init["id"]
        self.group = init["group"]
        self.filter = init["filter"]
        self.registries = init["registries"]
        self.times = init["configuration"]
        self.epoch = init["epoch"]
        self.state = "connecting"
        self.asked = 0
        self.leader = None
        self.pair = None
        self.number = 0
        self.sent_at = 0
        self.open = False
        self.leased = False
        self.streams = {}
        self.highest = {}
        self.unconfirmed = set()
        self.carried = set()
        self.set_timer("find", self.times["find_leader_ms"])

    # -- what it does

    def set_timer(self, name, ms, since=None):
        deadline = (self.now if since is None else since) + ms * MS
        effect = {"effect": "set_timer", "timer": name, "deadline_ns": deadline}
        if name == "lease":
            effect["authority"] = True
        self.effects.append(effect)

    def send(self, kind, to=None, **fields):
        if kind != "leader_wanted":
            fields = {"epoch": self.pair[0], "registration": self.pair[1], **fields}
        message = {"type": kind, "borrower": self.id, **fields}
        self.effects.append({"effect": "send", "to": to or self.leader, "message": message})

    def ask_for_leader(self):
        registry = self.registries[self.asked % len(self.registries)]
        self.asked += 1
        self.send("leader_wanted", registry, group=self.group, filter=self.filter)

    def ping(self):
        self.number += 1
        self.sent_at = self.now
        self.open = True
        self.carried |= self.unconfirmed
        self.unconfirmed = set()
        self.send("ping", n=self.number, reports=self.reports(self.carried))
        self.set_timer("answer", self.times["ping_timeout_ms"])

    def reports(self, names):
        return [self.report(name, self.streams[name]) for name in sorted(names)]

    def report(self, name, held):
        report = {"stream": name, "grant": held.grant, "progress": held.progress, "finished": held.final}
        return {**report, **held.passed_on}

    def send_progress(self, name):
        held = self.streams[name]
        self.send("update_progress", **self.report(name, held))

    def finish(self, name):
        self.streams[name].finishing = True
        self.changed(name)
        self.tell("finish", owner=self.id, stream=name, grant=self.streams[name].grant)

    def uninstall(self, name):
        held = self.streams.pop(name)
        self.unconfirmed.discard(name)
        self.carried.discard(name)
        self.tell("uninstall", owner=self.id, stream=name, grant=held.grant)

    def changed(self, name):
        self.unconfirmed.add(name)

    def end(self, recreate, reports=()):
        for name in sorted(self.streams):
            self.uninstall(name)
        self.tell("destroyed", borrower=self.id, recreate=recreate, epoch=self.epoch, reports=list(reports))
        self.stop()
        self.state = "destroyed"

    def begin_anew(self, epoch=0):
        self.epoch = max(self.epoch, epoch)
        self.end(True)

    def say_farewell(self, recreate=False):
        reports = self.reports(self.streams)
        self.send("disconnect", reports=reports)
        self.end(recreate, reports)

    def all_final(self):
        return all(held.final for held in self.streams.values())

    # -- what it is told

    def take(self, line):
        event = line.get("event", {})
        if "epoch" in event:
            self.now = line["now_ns"]
            self.on_paired(event, (event["epoch"], event["registration"]))
        else:
            super().take(line)

    def on_start(self, event):
        if self.state == "connecting":
            self.ask_for_leader()

    def on_undeclared(self, event):
        pass

    def on_timer_find(self):
        if self.state == "connecting":
            self.ask_for_leader()
            self.set_timer("find", self.times["find_leader_ms"])

    def on_paired(self, event, pair):
        kind = event["type"]
        if self.state == "connecting":
            if kind == "invalidate":
                self.begin_anew(event["epoch"])
            elif kind == "leader_connect_response" and event["epoch"] >= self.epoch:
                self.adopt(event, pair)
        elif kind == "invalidate":
            if pair >= self.pair:
                if self.state == "connected":
                    self.begin_anew(event["epoch"])
                else:
                    self.end(False)
        elif pair > self.pair:
            if self.state == "connected":
                self.begin_anew(event["epoch"])
        elif pair == self.pair and kind != "leader_connect_response":
            getattr(self, "on_" + kind)(event)

    def adopt(self, event, pair):
        self.state = "connected"
        self.leader = event["leader"]
        self.pair = pair
        self.epoch = event["epoch"]
        self.cancel("find")
        self.ping()

    def on_timer_ping(self):
        self.ping()

    def on_ping_response(self, event):
        if not self.open or event["n"] != self.number:
            return
        self.open = False
        self.carried = set()
        self.cancel("answer")
        self.set_timer("ping", self.times["ping_interval_ms"])
        if self.state == "connected":
            lease = self.times["ping_interval_ms"] + self.times["ping_timeout_ms"]
            self.set_timer("lease", lease, self.sent_at)
            if not self.leased:
                self.leased = True
                self.tell("lease_began", owner=self.id)

    def on_timer_answer(self):
        if self.state == "connected":
            self.begin_anew()
        else:
            self.say_farewell()

    def on_timer_lease(self):
        if self.state == "connected":
            self.leased = False
            self.tell("lease_ended", owner=self.id)

    def on_grant(self, event):
        name, grant = event["stream"], event["grant"]
        if self.state != "connected":
            return
        held = self.streams.get(name)
        if grant > self.highest.get(name, 0):
            if held:
                self.uninstall(name)
            self.highest[name] = grant
            self.streams[name] = Stream(event)
            self.changed(name)
            fields = ("stream", "grant", "progress", "failed", "most", "relaxed", "acked", "repeats")
            self.tell("install", owner=self.id, **{field: event[field] for field in fields})
            self.send_progress(name)
        elif held and held.grant == grant:
            self.send_progress(name)

    def on_revoke(self, event):
        if self.state == "connected":
            held = self.streams.get(event["stream"])
            if held and held.grant == event["grant"]:
                if not held.finishing:
                    self.finish(event["stream"])
                self.send_progress(event["stream"])
            else:
                self.forget(event)

    def on_revoked(self, event):
        last = self.streams.get(event["stream"])
        self.forget(event)
        is_gone = last and event["stream"] not in self.streams
        if self.state == "unsubscribing" and is_gone and not last.final and self.all_final():
            self.say_farewell()

    def forget(self, event):
        name, grant = event["stream"], event["grant"]
        held = self.streams.get(name)
        if held and grant >= held.grant:
            self.uninstall(name)
        self.highest[name] = max(self.highest.get(name, 0), grant)
        self.send("revoke_finished", stream=name, grant=grant)

    def on_stream_progress(self, event):
        held = self.streams.get(event["stream"])
        if self.state == "connecting" or not held or event["grant"] != held.grant:
            return
        if event["progress"] < held.progress:
            return
        was_final = held.final
        held.progress = event["progress"]
        held.final = held.final or event["finished"] or held.progress == END_OF_STREAM
        held.passed_on = {field: event[field] for field in held.passed_on}
        self.changed(event["stream"])
        self.send_progress(event["stream"])
        if self.state == "unsubscribing" and not was_final and self.all_final():
            self.say_farewell()

    def on_on_unsubscribe(self, event):
        if self.state == "connecting":
            self.end(False)
        elif self.state == "connected":
            if self.all_final():
                self.say_farewell()
                return
            self.state = "unsubscribing"
            self.cancel("lease")
            self.set_timer("leave", self.times["unsubscribe_timeout_ms"])
            for name in sorted(self.streams):
                if not self.streams[name].finishing:
                    self.finish(name)

    def on_timer_leave(self):
        if self.state == "unsubscribing":
            self.say_farewell()

    def on_on_disconnect(self, event):
        if self.state == "connecting":
            self.end(False)
        else:
            self.say_farewell()

    def on_give_back(self, event):
        if self.state == "connecting":
            self.end(True)
        elif self.state == "connected":
            self.say_farewell(True)


if __name__ == "__main__":
    serve(Borrower)
