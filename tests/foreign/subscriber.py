"""A subscriber of missed samples in plain Python, by docs/test_your_implementation.md and MS-01 to MS-81."""

from plain_lines import Instance, serve
from sample_source import TIMERS, Source


class Subscriber(Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.recovery, self.history, self.width = init["recovery"], init["history"], init["width"]
        self.origin = 0 if self.width == 64 else 1 << self.width
        self.state = "new"
        self.sources = {}
        self.queries = 0  # the highest number of a query about a source that is forgotten
        self.tries = 0

    def backoff_ms(self, attempts):
        pacing = self.recovery["pacing"]
        return min(pacing["backoff_ms"] << max(attempts - 1, 0), pacing["backoff_max_ms"])

    def ask_query(self, source, n, first, newest, last, age_ms=0):
        self.ask("query", "query", source=source, n=n, first=first, newest=newest, age_ms=age_ms, last=last)

    def take(self, line):
        if self.state != "new" or line.get("event", {}).get("type") in ("subscribe", "unsubscribe"):
            super().take(line)

    # -- the first query

    def on_subscribe(self, event):
        self.state = "subscribed"
        if self.history:
            self.on_timer_pause()

    def on_unsubscribe(self, event):
        self.stop()

    def on_timer_pause(self):
        if self.state != "subscribed" or not self.tries:
            self.state = "history"
            self.tries += 1
            self.ask_query("*", self.tries, self.origin, self.history["newest"], -1, self.history["age_ms"])
            self.set_timer("history", self.recovery["pacing"]["history_ms"])

    def on_timer_history(self):
        if self.state != "history":
            return
        if self.tries > self.recovery["retries"]:
            self.end_history()
        else:
            self.state = "paused"
            self.cancel("history")
            self.set_timer("pause", self.backoff_ms(self.tries))

    def end_history(self):
        self.state = "subscribed"
        self.cancel("history", "pause")
        for _, source in sorted(self.sources.items()):
            source.end_history()

    # -- what comes

    def find(self, name):
        """The source, known or new; None where there is no place for it."""
        if name not in self.sources and len(self.sources) < self.recovery["sources"]:
            self.sources[name] = Source(self, name, self.state != "subscribed")
        return self.sources.get(name)

    def forget(self, source):
        self.queries = max(self.queries, source.query_n)
        del self.sources[source.name]

    def number(self, source, at):
        """What a number of the wire stands for."""
        if source.state == "unknown":
            return self.origin + at
        half = 1 << (self.width - 1)
        return at if self.width == 64 else source.top + (at - source.top + half) % (2 * half) - half

    def on_unnumbered(self, event):
        self.tell("deliver_unnumbered")

    def on_sample(self, event):
        if event["first"] >> self.width:
            return
        source, count = self.find(event["source"]), event["last"] - event["first"]
        if source:
            first = self.number(source, event["first"])
            source.on_sample(first, first + count)
        else:
            first = self.origin + event["first"]
            self.tell("turned_away", source=event["source"], first=first, last=first + count)

    def on_heartbeat(self, event):
        last, known = event["last"], self.sources.get(event["source"])
        is_news = last >= 0 or not known or known.state == "unknown"
        if (last < 0 or not last >> self.width) and is_news and (source := self.find(event["source"])):
            source.on_heartbeat(self.number(source, last))

    def on_appeared(self, event):
        if source := self.find(event["source"]):
            source.on_appeared(event["new"])

    def on_disappeared(self, event):
        if source := self.sources.get(event["source"]):
            source.on_disappeared()

    def on_query_goes_on(self, event):
        if event["source"] == "*" and self.state == "history":
            self.set_timer("history", self.recovery["pacing"]["history_ms"])
        elif source := self.sources.get(event["source"]):
            source.on_query_goes_on(event["n"])

    def on_query_ended(self, event):
        if event["source"] == "*" and self.state in ("history", "paused"):
            if event["brought"] > 0:
                self.end_history()
            elif event["n"] == self.tries:
                self.on_timer_history()
        elif source := self.sources.get(event["source"]):
            source.on_query_ended(event["n"], event["brought"])

    def on_timer_of(self, name):
        timer, name = name.split(" ", 1)
        source = self.sources.get(name)
        if source and timer in ("retention", "overdue", TIMERS.get(source.state)):
            getattr(source, "on_timer_" + timer)()


serve(Subscriber)
