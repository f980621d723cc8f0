"""A source of samples, as a subscriber sees it: a part of subscriber.py."""

from types import SimpleNamespace

from plain_lines import MS

TIMERS = {"live": "period", "recovering": "query", "resting": "rest"}
"""The timer of a state; `retention` belongs to all three."""


class Source:
    def __init__(self, subscriber, name, has_history):
        self.subscriber, self.name, self.recovery = subscriber, name, subscriber.recovery
        self.query_n, self.origin = subscriber.queries, subscriber.origin
        self.state, self.has_history = "unknown", has_history
        self.expected, self.top, self.held, self.doubt = 0, 0, set(), -1
        self.is_new, self.is_alive, self.is_heard = False, False, False
        self.spoke_ns, self.silence_ns = 0, 0
        self.end_round()

    def end_round(self):
        self.windows, self.asked, self.asked_top, self.vain, self.silent = [], [], 0, 0, 0

    # -- states and timers

    def set_timer(self, name, ms, ns=0):
        self.subscriber.set_timer(f"of {name} {self.name}", ms, ns)

    def enter(self, state):
        was, self.state = self.state, state
        if was in ("unknown", "history"):
            self.set_timer("retention", self.recovery["retention_ms"])
        elif was != state:
            self.subscriber.cancel(f"of {TIMERS[was]} {self.name}")

    def live(self):
        if self.state != "live":
            self.enter("live")
            self.end_round()
            if self.recovery["period_ms"]:
                self.set_timer("period", self.recovery["period_ms"])

    def recover(self):
        self.enter("recovering")
        self.wait()

    def wait(self):
        least, most = self.recovery["timeout_ms"], self.recovery["timeout_max_ms"]
        longest_ns = min(max((least << self.silent) * MS, 2 * self.silence_ns), most * MS)
        self.set_timer("query", least, max(0, longest_ns - least * MS))

    def rest(self):
        self.windows = []
        attempts = sum(one > self.expected for one in self.asked)
        self.enter("resting")
        self.set_timer("rest", self.subscriber.backoff_ms(attempts))

    # -- numbers

    def missing_from(self, place):
        while place in self.held:
            place += 1
        return place

    def has_missing(self):
        return self.top - self.expected > len(self.held)

    def extend(self, first, last):
        if self.state == "unknown":
            is_ours = self.is_new or (self.recovery["past"] and not self.has_history)
            self.expected, self.top = self.origin if is_ours else first, last + 1
        self.top, self.is_heard = max(self.top, last + 1), True

    def settle(self, below=0):
        while True:
            after = min(self.held, default=self.top)
            if after == self.expected != self.top:
                kind, after = "deliver", self.missing_from(after)
            elif len(self.held) > self.recovery["pending"] or self.expected < min(below, after):
                kind = "missed"
                after = after if len(self.held) > self.recovery["pending"] else min(below, after)
            else:
                return
            self.subscriber.tell(kind, source=self.name, first=self.expected, last=after - 1)
            self.held.difference_update(range(self.expected, after))
            self.expected = after

    def go_on(self):
        """After numbers have come: with the first query, or with what is missing, or without."""
        if self.has_history and len(self.held) <= self.recovery["history_limit"]:
            self.state = "history"
            return
        self.has_history = False
        self.settle()
        if not self.has_missing():
            self.live()
        elif self.state not in ("recovering", "resting"):
            self.windows, self.spoke_ns = [], self.subscriber.now
            self.open_windows()
            self.recover()

    def on_sample(self, first, last):
        is_jump = first == last and first - self.top > self.recovery["jump"]
        if self.state != "unknown" and is_jump and not 0 < first - self.doubt <= self.recovery["jump"]:
            self.doubt = first
            return
        is_reply = self.fill(first, last)
        self.extend(first, last)
        if self.has_history:
            self.expected = min(self.expected, first)
        found = set(range(max(first, self.expected), last + 1)) - self.held
        if found and (self.state, first) != ("live", self.expected):
            self.doubt = -1
        self.held |= found
        self.go_on()
        if is_reply and self.state == "recovering":
            self.hear_reply()
            self.wait()

    def on_heartbeat(self, last):
        is_jump = last - self.top > self.recovery["jump"]
        if self.state != "unknown" and is_jump and not 0 <= last - self.doubt <= self.recovery["jump"]:
            self.doubt, self.is_heard = last, True
            return
        self.extend(last + 1, last)
        if self.state not in ("recovering", "resting"):
            self.go_on()

    # -- tokens, silence and the first query

    def look(self):
        """Ask for the newest two."""
        self.query_n += 1
        self.subscriber.ask_query(self.name, self.query_n, self.origin, 2, self.origin - 1)

    def on_appeared(self, is_new):
        was_alive, self.is_alive = self.is_alive, True
        if self.state == "unknown":
            self.is_new = is_new
            if not self.has_history and not was_alive and (is_new or self.recovery["past"]):
                self.look()

    def on_disappeared(self):
        self.is_alive = False
        if self.state == "unknown":
            self.subscriber.forget(self)

    def end_history(self):
        was, self.has_history = self.has_history, False
        if self.state == "history":
            self.go_on()
        elif was and self.state == "unknown" and self.is_alive and (self.is_new or self.recovery["past"]):
            self.look()

    def on_timer_retention(self):
        if self.state == "live" and not self.is_heard and not self.is_alive:
            self.enter("gone")
            self.subscriber.cancel(f"of retention {self.name}")
            self.subscriber.forget(self)
        else:
            self.is_heard = False
            self.set_timer("retention", self.recovery["retention_ms"])

    # -- queries

    def open_windows(self):
        if not self.windows:
            self.asked_top = self.top
        place = self.expected
        while len(self.windows) < (1 if self.silent else self.recovery["windows"]):
            first = self.missing_from(place)
            if first >= self.top or any(one.status == "failed" for one in self.windows):
                return
            around = [one for one in self.windows if one.first <= first <= one.last]
            if around:
                place = around[0].last + 1
                continue
            last, newest = self.reach(first)
            above = min((one.first for one in self.windows if one.first > first), default=last + 1)
            self.open_window(first, min(last, above - 1), newest)

    def reach(self, first):
        """Up to which number a window goes, and how many of its newest it asks for."""
        window = self.recovery["window"]
        end = min((one for one in self.held if one > first), default=self.top) - 1
        is_vain = window > 1 and first == self.expected and first < self.vain and end - first >= window
        if is_vain and len(self.held) + window <= self.recovery["pending"]:
            return end + 1, window
        return first + window - 1, 0

    def open_window(self, first, last, newest):
        self.query_n += 1
        window = {"n": self.query_n, "first": first, "last": last, "newest": newest, "top": self.top}
        self.windows.append(SimpleNamespace(**window, filled=0, below=0, status="open"))
        self.windows.sort(key=lambda one: (one.first, one.n))
        self.subscriber.ask_query(self.name, self.query_n, first, newest, last)

    def fill(self, first, last):
        """Count in each query what was missing; whether it is a reply."""
        found = set(range(max(first, self.expected), min(last, self.top - 1) + 1)) - self.held
        is_reply = False
        for one in self.windows:
            filled = len(found.intersection(range(one.first, one.last + 1)))
            if filled and one.status == "open":
                one.filled += filled
                is_reply = True
        return is_reply

    def hear_reply(self):
        now = self.subscriber.now
        self.silence_ns, self.spoke_ns, self.silent = max(now - self.spoke_ns, self.silence_ns), now, 0

    def find_open(self, n):
        return next((one for one in self.windows if one.n == n and one.status == "open"), None)

    def on_query_goes_on(self, n):
        if self.state == "recovering" and self.find_open(n):
            self.hear_reply()
            self.wait()
        elif self.state == "resting":
            self.hear_reply()

    def end_window(self, one, brought):
        is_whole = not one.newest or one.filled < one.newest - 1
        if brought and self.recovery["reliable"] and is_whole:
            one.status, one.below = "well", min(one.first + brought, one.last + 1)
        elif one.filled or one.last < one.first:
            self.windows.remove(one)
        else:
            one.status = "failed"

    def on_query_ended(self, n, brought):
        one = self.find_open(n)
        if self.state != "recovering" or not one:
            return
        self.silence_ns -= self.silence_ns // 8
        self.hear_reply()
        self.end_window(one, brought)
        self.conclude(False)
        if not self.has_missing():
            self.live()
            return
        self.open_windows()
        if any(one.status == "open" for one in self.windows):
            self.recover()
        else:
            self.rest()

    def on_timer_query(self):
        opened = [one for one in self.windows if one.status == "open"]
        is_silent = not any(one.filled for one in opened)
        self.silent += 1
        for one in opened:
            self.end_window(one, 0)
        self.conclude(is_silent)
        if self.has_missing():
            self.rest()
        else:
            self.live()

    def on_timer_rest(self):
        self.open_windows()
        self.recover()

    def on_timer_period(self):
        self.spoke_ns, self.asked_top = self.subscriber.now, self.top
        self.open_window(self.expected, self.expected - 1, 2)
        self.recover()

    def conclude(self, is_silent):
        """What the queries that are over say."""
        while ready := [
            one for one in self.windows if one.status == "well" and one.first <= self.missing_from(self.expected)
        ]:
            self.windows.remove(ready[0])
            self.settle(ready[0].below)
        if any(one.status == "open" for one in self.windows):
            return
        top = self.expected
        for one in self.windows:
            if one.status != "failed" or not one.first <= self.missing_from(top) <= one.last:
                break
            top = min(one.last + 1, one.top)
        if top > self.expected:
            if is_silent:
                top = max(top, self.asked_top)
            else:
                self.vain = top
            retries = self.recovery["retries"]
            self.asked = sorted(one for one in (*self.asked, top) if one > self.expected)[-retries - 1 :]
            if len(self.asked) > retries:
                self.settle(self.asked[0])
        if not any(one > self.expected for one in self.asked) or all(one.status != "failed" for one in self.windows):
            self.windows = []
