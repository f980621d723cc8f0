"""The state of a session, and what of it is on its way to the client: a part of session.py."""

STARVED = ("behind", "draining")
OWNING = ("reading", "subscribing", "syncing", "normal")


class SessionState:
    """Needs `ask`, `send` and `tell`, and of the session its names and times."""

    def load(self, event):
        state = event["state"]
        self.session, self.loaded = event["session"], event["time_ns"]
        self.packets = dict(state["packets"])
        self.ended = set()
        self.state = {"taken": state["taken"], "queued": state["queued"], "places": state["places"]}

    def is_crowded(self):
        return len(self.state["queued"]) + len(self.inbox) >= self.times["queue"]

    def room(self):
        return 0 if self.inbox or self.state["queued"] else max(0, self.most - len(self.packets))

    def waits_with_room(self):
        is_starved = any(map(self.is_starved, self.flows.values()))
        return is_starved and not self.committing and 0 < self.room() < self.page

    def is_synchronised(self):
        flows = self.flows.values()
        is_ready = not self.committing and all(flow.state in ("done", *STARVED) for flow in flows)
        return is_ready and (not self.blocked_flows() or any(map(self.is_starved, flows)))

    def is_starved(self, flow):
        return flow.state in STARVED and not flow.blocked

    def is_admitted(self):
        queued = self.state["queued"]
        return bool(queued) and (queued[0]["qos"] == 0 or len(self.packets) < self.most)

    def commit(self, changes):
        state, waited, changed = self.state, len(self.state["queued"]), set()
        writers = {change["writer"] for kind, change in changes if kind == "take"}
        for kind, change in changes:
            if kind == "take":
                state["taken"][change["writer"]] = [change["epoch"], change["rows"][-1]["number"]]
                state["queued"] += [
                    {**row, "filter": one, "stored_ns": 0, "more": []}
                    for row in change["rows"]
                    for one in (row["filter"], *row["more"])
                    if row["message"]
                ]
                self.marks.append(change)
            else:
                self.packets[change]["status"] = "received"
                changed.add(change)
        while self.is_admitted():
            queued, packet = state["queued"].pop(0), 0
            if queued["qos"]:
                packet = state["places"] % 65_535 + 1
                while packet in self.packets:
                    packet = packet % 65_535 + 1
                place = {"packet": packet, "client": self.client, "queued": queued, "place": state["places"]}
                self.packets[packet] = {**place, "status": "taken"}
                changed.add(packet)
                state["places"] += 1
            self.outgoing.append((packet, queued))
        self.inbox, self.committing = [], True
        kept = max(0, waited - len(self.outgoing))
        shown = {
            "taken": {writer: state["taken"][writer] for writer in writers},
            "ended": sorted(self.ended),
            "packets": [dict(self.packets[packet]) for packet in sorted(changed)],
            "dequeued": waited - kept,
            "queued": state["queued"][kept:],
            "places": state["places"],
        }
        self.ended = set()
        self.ask("commit_state", session=self.session, token=self.token, change=shown)

    def add_take(self, writer, epoch, rows):
        self.inbox.append(("take", {"writer": writer, "epoch": epoch, "rows": rows}))
        if not self.committing:
            self.commit(self.inbox)

    def publish(self, packet, queued, dup, time):
        left = max(queued["until_ns"] - time, 0) if queued["until_ns"] else None
        fields = {"message": queued["message"], "filter": queued["filter"], "qos": queued["qos"]}
        self.send(self.client, "publish", packet=packet, dup=dup, left_ns=left, **fields)

    def in_places(self):
        return sorted(self.packets.values(), key=lambda one: one["place"])

    def release(self, one):
        one["status"] = "released"
        self.send(self.client, "pubrel", packet=one["packet"])

    def resend(self):
        for one in self.in_places():
            if one["status"] in ("taken", "sent"):
                one["status"] = "sent"
                self.publish(one["packet"], one["queued"], True, self.loaded)
            else:
                self.release(one)
        if self.is_admitted():
            self.commit([])

    def on_state_committed(self, event):
        if self.status not in OWNING or not self.committing:
            return
        waited, time, received = self.waits_with_room(), event["time_ns"], []
        received = [one for one in self.in_places() if one["status"] == "received"]
        for take in self.marks:
            first, last = take["rows"][0]["number"], take["rows"][-1]["number"]
            place = {"writer": take["writer"], "epoch": take["epoch"], "number": first, "last": last}
            self.ask("mark_delivered", session=self.session, **place)
        for packet, queued in self.outgoing:
            if 0 < queued["until_ns"] <= time:
                self.packets.pop(packet, None)
                fields = {key: queued[key] for key in ("message", "filter", "qos", "until_ns")}
                self.tell("message_expired", time_ns=time, **fields)
                continue
            if packet:
                self.packets[packet]["status"] = "sent"
            self.publish(packet, queued, False, time)
        for one in received:
            self.release(one)
        self.outgoing, self.marks, self.committing = [], [], False
        if self.inbox or self.is_admitted():
            self.commit(self.inbox)
        self.settle(waited)
        self.finish()

    def on_acknowledged(self, event):
        if self.status not in OWNING:
            return
        waited, kind, held = self.waits_with_room(), event["type"], len(self.packets)
        last = event.get("last") or event["packet"]
        for packet in [one for one in sorted(self.packets) if event["packet"] <= one <= last]:
            one = self.packets[packet]
            step = (kind, one["status"], one["queued"]["qos"])
            if step in (("puback", "sent", 1), ("pubcomp", "released", 2)):
                del self.packets[packet]
                self.ended.add(packet)
            elif step == ("pubrec", "sent", 2) and ("received", packet) not in self.inbox:
                self.inbox.append(("received", packet))
            elif step == ("pubrec", "released", 2):
                self.release(one)
        made_room = len(self.packets) < held and self.is_admitted()
        if not self.committing and (self.inbox or made_room):
            self.commit(self.inbox)
        self.settle(waited)

    on_puback = on_pubrec = on_pubcomp = on_acknowledged
