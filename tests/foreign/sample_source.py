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
        self.windows, self.over = [], []
        self.answer_ns, self.spread_ns, self.gap_ns = 0, 0, 0
        self.end_round()

    def end_round(self):
        self.leave([])
        self.asked, self.front, self.vain, self.marks, self.overdue_ns = [], 0, 0, [], -1

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
            if self.state in ("recovering", "resting"):
                self.subscriber.cancel(f"of overdue {self.name}")
            self.enter("live")
            self.end_round()
            if self.recovery["period_ms"]:
                self.set_timer("period", self.recovery["period_ms"])

    def recover_or_rest(self):
        """What is missing is waited for, or asked for later."""
        if self.list_open():
            self.enter("recovering")
            self.wait()
        else:
            self.enter("resting")
            self.set_timer("rest", self.subscriber.backoff_ms(self.attempts()))
        self.note_missing()

    def wait(self):
        self.set_timer("query", 0, min(self.due_ns(one) for one in self.list_open()) - self.subscriber.now)

    def note_missing(self):
        """Since when something is missing; what was missed soon after it counts with it."""
        now, deadline_ns = self.subscriber.now, self.recovery["deadline_ms"] * MS
        if not self.has_missing():
            self.marks = []
            return
        self.marks = [one for one in self.marks if one["top"] > self.expected]
        top = self.top
        while top - 1 in self.held:
            top -= 1
        if not self.marks or self.marks[-1]["top"] < top:
            if self.marks and now - self.marks[-1]["since_ns"] < deadline_ns // 8:
                self.marks[-1]["top"] = top
            else:
                self.marks.append({"top": top, "since_ns": now, "expected": self.expected})
        if self.overdue_ns != self.marks[0]["since_ns"] + deadline_ns:
            self.overdue_ns = self.marks[0]["since_ns"] + deadline_ns
            self.set_timer("overdue", 0, self.overdue_ns - now)

    def attempts(self):
        return len(self.asked) if self.front == self.expected else 0

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
        self.settle_ready()
        if not self.has_missing():
            self.live()
            return
        if self.state != "resting":
            self.close_filled()
            self.open_windows()
            self.enter("recovering")
            self.wait()
        self.note_missing()

    def on_sample(self, first, last):
        is_jump = first == last and first - self.top > self.recovery["jump"]
        if self.state != "unknown" and is_jump and not 0 < first - self.doubt <= self.recovery["jump"]:
            self.doubt = first
            return
        self.fill(first, last)
        self.extend(first, last)
        if self.has_history:
            self.expected = min(self.expected, first)
        found = set(range(max(first, self.expected), last + 1)) - self.held
        if found and (self.state, first) != ("live", self.expected):
            self.doubt = -1
        self.held |= found
        self.go_on()

    def on_heartbeat(self, last):
        is_jump = last - self.top > self.recovery["jump"]
        if self.state != "unknown" and is_jump and not 0 <= last - self.doubt <= self.recovery["jump"]:
            self.doubt, self.is_heard = last, True
            return
        self.extend(last + 1, last)
        if max(self.held, default=self.expected - 1) < last + 1 < self.top:
            self.lower_top(last + 1)
        self.go_on()

    def lower_top(self, top):
        """Nothing that was said of numbers from there on counts."""
        self.top, self.vain = top, min(self.vain, top)
        self.asked = [min(one, top) for one in self.asked]
        for one in self.windows:
            one.top, one.below = min(one.top, top), min(one.below, top)
        for one in self.marks:
            one["top"] = min(one["top"], top)

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

    def list_open(self):
        return [one for one in self.windows if one.status == "open"]

    def is_filled(self, one):
        return self.missing_from(max(one.first, self.expected)) > min(one.last, self.top - 1)

    def has_failed(self):
        return any(one.status == "failed" for one in self.windows)

    def leave(self, windows):
        """Only these are asked for; others may be answered still, which says how long answers take."""
        gone = [sent for one in self.windows if one not in windows for sent in one.sent if sent["sent_ns"] is not None]
        self.windows, self.over = windows, (self.over + gone)[-8:]

    def close_filled(self):
        if not self.has_failed():
            self.leave([one for one in self.windows if one.last < one.first or not self.is_filled(one)])

    def open_windows(self):
        place, pacing = self.expected, self.recovery["pacing"]
        room = 4 * pacing["window"] - sum(one.newest or one.last - one.first + 1 for one in self.windows)
        while len(self.windows) < pacing["windows"] and room > 0 and not self.has_failed():
            first = self.missing_from(place)
            if first >= self.top:
                return
            around = [one for one in self.windows if one.first <= first <= one.last]
            if around:
                place = around[0].last + 1
                continue
            last, newest = self.reach(first, min(room, pacing["window"]))
            above = min((one.first for one in self.windows if one.first > first), default=last + 1)
            self.open_window(first, min(last, above - 1), newest)
            room -= last - first + 1

    def reach(self, first, most):
        """Up to which number a window goes, and how many of its newest it asks for."""
        window = self.recovery["pacing"]["window"]
        end = min((one for one in self.held if one > first), default=self.top) - 1
        is_vain = window > 1 and first == self.expected and first < self.vain and end - first >= window
        if is_vain and len(self.held) + window <= self.recovery["pending"]:
            return end + 1, window
        return min(first + most - 1, end), 0

    def open_window(self, first, last, newest):
        window = {"first": first, "last": last, "newest": newest, "top": self.top, "silent": -1}
        window = SimpleNamespace(**window, sent=[], filled=0, below=0, status="open")
        self.windows.append(window)
        self.windows.sort(key=lambda one: one.first)
        self.send(window, 1)

    def send(self, one, copies):
        first = one.first if one.newest else self.missing_from(max(one.first, self.expected))
        last, ahead = one.last, self.recovery["pacing"]["ahead"]
        if ahead and not one.newest and self.missing_from(last + 1) >= self.top:
            last = self.top - 1 + ahead
        one.silent, one.spoke_ns, one.is_heard = one.silent + 1, self.subscriber.now, False
        for _ in range(copies):
            self.query_n += 1
            one.sent = [*one.sent, {"n": self.query_n, "first": first, "sent_ns": self.subscriber.now}][-8:]
            self.subscriber.ask_query(self.name, self.query_n, first, one.newest, last)

    def fill(self, first, last):
        """Count in each query what was missing."""
        found = set(range(max(first, self.expected), min(last, self.top - 1) + 1)) - self.held
        for one in self.list_open():
            filled = len(found.intersection(range(one.first, one.last + 1)))
            if filled:
                one.filled, one.silent = one.filled + filled, 0

    def due_ns(self, one):
        pacing, limit_ns = self.recovery["pacing"], self.recovery["pacing"]["timeout_ms"] * MS
        if self.answer_ns:
            limit_ns = max(self.answer_ns + max(2 * self.spread_ns, 10 * MS), pacing["timeout_min_ms"] * MS)
            limit_ns = min(limit_ns, pacing["timeout_max_ms"] * MS)
        if one.is_heard:
            limit_ns = max(limit_ns, 2 * self.gap_ns)
        doubled_ns = limit_ns << min(max(one.silent - 4, 0), 20)
        return one.spoke_ns + min(doubled_ns, pacing["timeout_max_ms"] * MS)

    def hear_answer(self, n):
        now = self.subscriber.now
        sent = [sent for one in self.windows for sent in one.sent] + self.over
        sent = next((one for one in sent if one["n"] == n), None)
        if sent is None:
            return
        if sent["sent_ns"] is not None:
            self.learn(max(now - sent["sent_ns"], 1))
            sent["sent_ns"] = None
        for one in self.list_open():
            if sent in one.sent:
                self.gap_ns = max(self.gap_ns, now - one.spoke_ns) if one.is_heard else self.gap_ns
                one.spoke_ns, one.is_heard = now, True
            elif not one.is_heard and one.sent[-1]["n"] > n:
                one.spoke_ns = now
        self.over = [one for one in self.over if one is not sent]

    def learn(self, took_ns):
        if not self.answer_ns:
            self.answer_ns, self.spread_ns = took_ns, took_ns // 4
            return
        self.spread_ns += (abs(took_ns - self.answer_ns) - self.spread_ns) // 4
        self.answer_ns += (took_ns - self.answer_ns) // 8

    def on_query_goes_on(self, n):
        if self.state in ("live", "recovering", "resting"):
            self.hear_answer(n)
        if self.state == "recovering":
            self.wait()

    def on_query_ended(self, n, brought):
        if self.state in ("live", "recovering", "resting"):
            self.hear_answer(n)
        one = next((one for one in self.list_open() if any(sent["n"] == n for sent in one.sent)), None)
        if self.state != "recovering" or not one:
            return
        self.gap_ns -= self.gap_ns // 8
        if brought == -1:
            if one.silent < 4 and not self.is_filled(one):
                self.send(one, 1)
        else:
            self.end_window(one, next(sent["first"] for sent in one.sent if sent["n"] == n), brought)
        self.end_turn()

    def end_window(self, one, first, brought):
        is_whole = not one.newest or one.filled < one.newest - 1
        self.leave([other for other in self.windows if other is not one])
        one.sent = []
        if brought and self.recovery["reliable"] and is_whole:
            one.status, one.below = "well", min(first + brought, one.last + 1)
        elif one.filled or one.last < one.first:
            return
        else:
            one.status = "failed"
        self.windows = sorted((*self.windows, one), key=lambda one: one.first)

    def end_turn(self):
        if not self.list_open() or any(one.status == "well" for one in self.windows):
            self.conclude()
        if not self.has_missing():
            self.live()
            return
        self.open_windows()
        self.recover_or_rest()

    def on_timer_query(self):
        self.leave([one for one in self.windows if one.status == "failed" or not self.is_filled(one)])
        if self.list_open():
            limit_ns = max(self.subscriber.now, min(self.due_ns(one) for one in self.list_open()))
            for one in [one for one in self.list_open() if self.due_ns(one) <= limit_ns]:
                self.send(one, 2)
            self.recover_or_rest()
        else:
            self.end_turn()

    def on_timer_overdue(self):
        if self.state == "live" or not self.has_missing():
            return
        self.overdue_ns = -1
        first, *others = self.marks
        was, is_open = self.expected, bool(self.list_open())
        if first["expected"] == was:
            self.settle(first["top"])
            self.settle_ready()
        if not self.has_missing():
            self.live()
            return
        for one in others:
            one["expected"] = self.expected if one["expected"] == was else one["expected"]
        first.update(since_ns=self.subscriber.now, expected=self.expected)
        self.marks = sorted((first, *others), key=lambda one: one["since_ns"])
        if is_open:
            self.close_filled()
            self.open_windows()
            self.wait()
        self.note_missing()

    def on_timer_rest(self):
        self.leave([one for one in self.windows if one.status == "well"])
        self.open_windows()
        self.recover_or_rest()

    def on_timer_period(self):
        self.open_window(self.expected, self.expected - 1, 2)
        self.enter("recovering")
        self.wait()

    def settle_ready(self):
        while ready := [
            one for one in self.windows if one.status == "well" and one.first <= self.missing_from(self.expected)
        ]:
            self.windows.remove(ready[0])
            self.settle(ready[0].below)

    def conclude(self):
        """What the queries that are over say."""
        self.settle_ready()
        if self.list_open():
            return
        top = self.expected
        for one in self.windows:
            first = self.missing_from(top)
            if first > one.last:
                continue
            if first < one.first or (one.status == "well" and one.below <= first):
                break
            top = one.below if one.status == "well" else min(one.last + 1, one.top)
        if top > self.expected:
            retries = self.recovery["retries"]
            asked = self.asked if self.front == self.expected else []
            self.asked = sorted((*asked, top))[-retries - 1 :]
            self.front, self.vain = self.expected, top
            if len(self.asked) > retries:
                self.settle(self.asked[0])
                self.settle_ready()
        if not self.attempts() or not self.has_failed():
            self.leave([one for one in self.windows if one.status == "well"])
