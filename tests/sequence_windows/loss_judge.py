"""A judge of losses that knows what was sent, and nothing of the product: no number is taken apart, only compared.

It keeps for each publisher and subject what was sent, in order, and what a receiver was handed; its own two sets of
subjects say what a receiver may have forgotten.  What it says of a message it says in its own words.
"""

from __future__ import annotations

CAP = 32767


class Judge:
    """One receiver of any publishers.  Ordinals count the messages of a publisher and subject from 0."""

    def __init__(self):
        self.sent = {}
        self.last = {}
        self.handed = {}
        self.current, self.old = set(), set()
        self.cuts = {}
        self.problems = []
        self.seen = {"missed": 0, "hidden": 0, "told": 0, "unknown": 0}

    def publish(self, who, subject, first, last, count=1):
        """So many messages were numbered, from `first` to `last`; the ordinal of the last of them."""
        sent, highest = self.sent.get((who, subject), (0, 0))
        if first <= highest or last < first:
            self.problems.append(f"MONO {who} {subject}: {first:x} to {last:x} after {highest:x}")
        self.sent[who, subject] = (sent + count, last)
        return sent + count - 1

    def forgot(self, who, subject):
        """The publisher has forgotten the subject: what follows says nothing about what was before."""
        self.cuts.setdefault((who, subject), []).append(self.sent.get((who, subject), (0, 0))[0])

    def flip(self):
        """The receiver's window turned."""
        for subject in sorted(self.old):
            self.forget(subject)
        self.old, self.current = self.current, set()

    def forget(self, subject):
        """The receiver knows nothing of the subject any more."""
        for place in [place for place in self.last if place[1] == subject]:
            del self.last[place], self.handed[place]
        self.current.discard(subject)
        self.old.discard(subject)

    def receive(self, who, subject, ordinal, verdict, lost, unknown):
        """Message `ordinal` came, and the product said this of it."""
        place = (who, subject)
        last = self.last.get(place)
        known, again = last is not None, ordinal in self.handed.get(place, ())
        missed = ordinal - last - 1 if known and ordinal > last else 0
        delivered = verdict in ("first", "next", "skip", "cycle")
        hidden = known and any(last < cut <= ordinal for cut in self.cuts.get(place, ()))
        self.check("ONCE", not (delivered and again), place, ordinal, verdict)
        self.check("FIRST", (verdict == "first") == (not known), place, ordinal, verdict)
        self.check("KEPT", delivered == (not known or ordinal > last), place, ordinal, verdict)
        if delivered and known:
            if verdict == "skip":
                self.check("NOFALSE", missed > 0, place, ordinal, verdict)
                self.check("EXACT", unknown or lost == min(missed, CAP), place, ordinal, f"{lost}, not {missed}")
            elif verdict == "next":
                self.check("DETECT", missed == 0, place, ordinal, verdict)
            elif verdict == "cycle":
                self.check("CYCLE", hidden, place, ordinal, verdict)
            if missed:
                self.seen["missed"] += 1
                self.seen["hidden" if verdict == "cycle" else "unknown" if unknown else "told"] += 1
        if delivered:
            self.last[place] = ordinal
            self.handed.setdefault(place, set()).add(ordinal)
        self.old.discard(subject)
        self.current.add(subject)

    def check(self, name, holds, place, ordinal, what):
        if not holds:
            self.problems.append(f"{name} {place} message {ordinal}: {what}")
