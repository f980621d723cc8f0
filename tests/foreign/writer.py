"""A Writer of persistent sessions, written from the clauses in plain Python; it imports nothing of ours."""

from plain_lines import Instance, serve


class Writer(Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.names = {"session": init["session"], "writer": init["writer"]}
        self.is_beginning, self.has_epoch, self.epoch, self.last = False, False, 0, 0
        self.work, self.jobs = None, []  # a job is a list of hands, or a marker
        self.reading = False
        self.owner, self.token = None, 0
        self.shown, self.shown_at = (0, 0), None  # the latest marker that was begun, and its k

    def ask(self, kind, **fields):
        super().ask("database", kind, **self.names, **fields)

    def send(self, to, kind, **fields):
        super().send(to, kind, **self.names, epoch=self.epoch, **fields)

    # -- one thing after the other

    def go_on(self):
        """The next thing that waits: all messages before a marker, or the marker."""
        self.work = self.jobs.pop(0) if self.jobs else None
        if isinstance(self.work, dict):
            self.shown, self.shown_at = (self.work["token"], self.work["n"]), None
        elif self.work is not None and len(self.work) > 128:
            self.jobs.insert(0, self.work[128:])
            self.work = self.work[:128]
        self.put()

    def rows(self, stored_ns=0):
        kept = ("message", "filter", "qos", "until_ns", "more")
        return [
            {"number": number, "stored_ns": stored_ns, **{one: hand[one] for one in kept}}
            for number, hand in enumerate(self.work, self.last + 1)
        ]

    def put(self):
        if isinstance(self.work, dict):
            marker = {"token": self.work["token"], "n": self.work["n"]}
            self.ask("put_marker", epoch=self.epoch, k=self.last + 1, **marker)
        elif self.work is not None:
            self.ask("put_rows", epoch=self.epoch, rows=self.rows())

    def append(self, hands):
        if self.jobs and isinstance(self.jobs[-1], list):
            self.jobs[-1] += hands
        else:
            self.jobs.append(list(hands))
        if self.has_epoch and self.work is None:
            self.go_on()

    def answer(self, hands):
        if len(hands) > 1:
            self.tell("range_written", hands=hands)
        elif hands:
            self.tell("written", message=hands[0]["message"], filter=hands[0]["filter"])

    def show(self, marker):
        self.send(marker["to"], "live_marker", k=self.shown_at, token=marker["token"], n=marker["n"])

    def finish_rows(self, stored_ns):
        rows = self.rows(stored_ns)
        if self.owner is not None:
            for row, hand in zip(rows, self.work, strict=True):
                self.send(self.owner, "live", queued=row, since_ns=hand["since_ns"])
        self.last += len(rows)
        self.answer(self.work)
        self.go_on()

    # -- what comes

    def on_start(self, event):
        self.is_beginning = True
        self.ask("begin_epoch")

    def on_epoch_begun(self, event):
        if self.is_beginning:
            self.is_beginning, self.has_epoch, self.epoch = False, True, event["epoch"]
            self.go_on()

    def on_hand(self, event):
        self.append([{name: value for name, value in event.items() if name != "type"}])

    def on_hand_range(self, event):
        self.append(event["hands"])

    def on_row_stored(self, event):
        if self.work is None or self.reading:
            return
        if isinstance(self.work, dict):
            self.shown_at = self.last + 1
            self.show(self.work)
            self.go_on()
        else:
            self.finish_rows(event["stored_ns"])

    def on_rows_duplicate(self, event):
        if not isinstance(self.work, list) or self.reading:
            return
        numbered = list(enumerate(self.work, self.last + 1))
        self.answer([hand for number, hand in numbered if number in event["numbers"]])
        self.work = [hand for number, hand in numbered if number not in event["numbers"]]
        self.put() if self.work else self.go_on()

    def on_row_fenced(self, event):
        if self.work is not None and not self.reading:
            self.epoch, self.last, self.shown_at = event["epoch"], 0, None
            self.put()

    def on_row_unclear(self, event):
        if isinstance(self.work, dict):
            self.put()
        elif self.work is not None and not self.reading:
            self.reading = True
            self.ask("read_row", epoch=self.epoch, number=self.last + 1)

    def on_row_read(self, event):
        if self.reading:
            self.reading = False
            self.finish_rows(event["stored_ns"]) if event["found"] else self.put()

    def on_marker_wanted(self, event):
        mark = (event["token"], event["n"])
        waiting = [one for one in self.jobs if isinstance(one, dict)]
        if mark == self.shown and self.shown_at is not None:
            self.show(event)
        elif self.has_epoch and self.work is None:
            if mark >= self.shown:
                self.jobs.append(event)
                self.go_on()
        elif mark > max([self.shown, *((one["token"], one["n"]) for one in waiting)]):
            self.jobs = [one for one in self.jobs if isinstance(one, list)]
            self.jobs = [[hand for one in self.jobs for hand in one]] if self.jobs else []
            self.jobs.append(event)

    def on_live_known(self, event):
        if event["token"] >= self.token:
            self.owner, self.token = event["to"], event["token"]

    def on_live_gone(self, event):
        if event["token"] == self.token:
            self.owner = None


serve(Writer)
