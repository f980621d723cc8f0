"""A publisher of missed samples in plain Python, by docs/test_your_implementation.md and MS-30 to MS-36 alone."""

from plain_lines import Instance, serve


class Publisher(Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.source, self.to, self.beats = init["source"], init["to"], init["beats"]
        self.period_ms, self.next, self.round = init["period_ms"], init["next"], 2 ** init["width"]
        self.is_due = False

    def set_heartbeat(self):
        self.is_due = True
        self.set_timer("heartbeat", self.period_ms)

    def on_declare(self, event):
        if self.beats == "periodic":
            self.set_heartbeat()

    def on_undeclare(self, event):
        self.stop()

    def on_publish(self, event):
        first, self.next = self.next, self.next + event["count"]
        self.tell("stamped", source=self.source, first=first, last=self.next - 1)
        at = first % self.round
        self.send(self.to, "sample", source=self.source, first=at, last=at + event["count"] - 1)
        if self.beats == "sporadic" and not self.is_due:
            self.set_heartbeat()

    def on_timer_heartbeat(self):
        self.is_due = False
        if self.next:
            self.send(self.to, "heartbeat", source=self.source, last=(self.next - 1) % self.round)
        if self.beats == "periodic":
            self.set_heartbeat()


serve(Publisher)
