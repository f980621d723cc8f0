"""A cache of missed samples in plain Python, by docs/test_your_implementation.md and MS-40 to MS-49 alone."""

import re

from plain_lines import Instance, serve

INSTANT = r"(\d{1,20}|now\((?:[-+]?\d{1,12}(?:ns|us?|ms|[smhdw]))?\)|)"
FORMS = {
    "_sn": re.compile(r"(\d{0,20})(?:(\.\.)(\d{0,20}))?", re.ASCII),
    "_max": re.compile(r"(\d{1,20})", re.ASCII),
    "_time": re.compile(rf"([][]){INSTANT}\.\.{INSTANT}([][])", re.ASCII),
}
SECOND = 10**9
ALWAYS = 10**30
UNITS = {"ns": 1, "us": 10**3, "u": 10**3, "ms": 10**6, "s": SECOND, "m": 60 * SECOND, "h": 3_600 * SECOND}
UNITS |= {"d": 24 * UNITS["h"], "w": 168 * UNITS["h"]}


def read_chunk(chunk):
    """The form of what a chunk of a key expression matches."""
    if chunk.startswith("@"):
        return re.escape(chunk) + "/"
    if chunk == "**":
        return "([^/@][^/]*/)*"
    return "(?!@)" + re.escape(chunk).replace(r"\$\*", "[^/]*").replace(r"\*", "[^/]+") + "/"


def is_about(expression, key):
    """Whether a key expression matches a key."""
    return re.fullmatch("".join(map(read_chunk, expression.split("/"))), f"{key}/") is not None


def read_instant(text, now):
    """Nanoseconds since 1970 (None: left out)."""
    if not text.startswith("now("):
        return int(text) if text else None
    sign, count, unit = re.fullmatch(r"now\(([-+]?)(\d*)(\w*)\)", text).groups()
    return now + int(sign + (count or "0")) * UNITS[unit or "s"]


class Cache(Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.prefix, self.expression, self.is_local = init["prefix"], init["expression"], init["local"]
        self.history, self.places, self.retention_ms = init["history"], init["places"], init["retention_ms"]
        self.width, self.half = init["width"], 1 << (init["width"] - 1)
        self.queues = {}  # of a source and key: the time of each number
        self.heard = None  # while it is crowded: into which queues something came

    def nearest(self, number, queue):
        """The number without end that is nearest to the highest of the queue."""
        if not queue or self.width == 64:
            return number
        return max(queue) + (number - max(queue) + self.half) % (2 * self.half) - self.half

    def is_backwards(self, low, high):
        return low > high if self.width == 64 else (high - low) % (2 * self.half) >= self.half

    def read_number(self, text):
        """A number of the wire (None: left out)."""
        if text and int(text) >> self.width:
            raise ValueError(f"{text} has more than {self.width} bits")
        return int(text) if text else None

    def read(self, parameters, now):
        """Numbers from and to, how many, and times: None is open."""
        said = {}
        for name, _, value in (part.partition("=") for part in parameters.split(";")):
            if name in FORMS:
                form = FORMS[name].fullmatch(value)
                if form is None or name in said or value == "" or len(parameters) > 4_096:
                    raise ValueError(f"{name}={value} cannot be read, or is said twice")
                said[name] = form.groups()
        first, dots, last = said.get("_sn", ("", "..", ""))
        low, high = self.read_number(first), self.read_number(last if dots else first)
        if None not in (low, high) and self.is_backwards(low, high):
            raise ValueError(f"{low} to {high} ends before it begins")
        opened, since, until, closed = said.get("_time", ("[", "", "", "]"))
        begin, end = read_instant(since, now), read_instant(until, now)
        times = None
        if since or until:
            times = (begin or 1) + (opened == "]"), (ALWAYS if end is None else end) - (closed == "[")
        return low, high, self.read_number(*said.get("_max", ("",))), times

    def select(self, queue, low, high, newest, times):
        """The numbers of a queue that are asked for, in order."""
        first = min(queue) if low is None else self.nearest(low, queue)
        last = max(queue) if high is None else self.nearest(high, queue)
        begin, end = times or (0, ALWAYS)
        found = [number for number in sorted(queue) if first <= number <= last and begin <= queue[number] <= end]
        return found if newest is None else found[max(0, len(found) - newest) :]

    def on_published(self, event):
        source, key, first, last = (event[name] for name in ("source", "key", "first", "last"))
        is_wanted = self.prefix in ("*", source) and is_about(self.expression, key)
        if not source or self.is_local > event["local"] or not is_wanted or first >> self.width:
            return
        place = (source, key)
        if place not in self.queues and len(self.queues) == self.places:
            if self.heard is None:
                self.heard = set()
                self.set_timer("crowded", self.retention_ms)
            self.tell("not_kept", key=key, source=source, first=first, last=last)
            return
        if self.heard is not None:
            self.heard.add(place)
        queue = self.queues.setdefault(place, {})
        begin = self.nearest(first, queue)
        for number in range(begin, begin + last - first + 1)[-self.history :]:
            queue.setdefault(number, event["t_ns"])
        for number in sorted(queue)[: -self.history]:
            del queue[number]

    def on_timer_crowded(self):
        for source, key in sorted(self.queues.keys() - self.heard):
            del self.queues[source, key]
            self.tell("let_go", key=key, source=source)
        self.heard = None

    def on_cache_query(self, event):
        to, n = event["asker"], event["n"]
        try:
            selector = self.read(event["parameters"], event["t_ns"])
        except ValueError as error:
            self.send(to, "reply_refused", n=n, why=str(error))
            return
        for (source, key), queue in self.queues.items():
            if event["source"] in ("*", source) and is_about(event["expression"], key):
                for number in self.select(queue, *selector):
                    at = number % (1 << self.width)
                    self.send(to, "reply", n=n, key=key, source=source, first=at, last=at)
        self.send(to, "reply_ended", n=n)

    def on_withdraw(self, event):
        self.stop()


serve(Cache)
