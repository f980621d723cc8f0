"""Judge of losses: feeds the observers of the properties with what was sent, and with what a receiver says of it.

Its own two sets of subjects say what a receiver may have forgotten.
"""

from statemachines.sequence_windows.properties.heard_messages import ArrivedMessage, HeardMessages, remember_publisher
from statemachines.sequence_windows.properties.published_numbers import PublishedNumbers


class Judge:
    """One receiver of any publishers, with `places` for those of a subject; `ordered`: nothing overtakes."""

    def __init__(self, *, ordered=True, places=0):
        self.ordered, self.places = ordered, places
        self.sent, self.heard = {}, {}
        self.current, self.old = set(), set()
        self.spoke, self.crowded = {}, set()
        self.cuts = {}
        self.problems = []
        self.seen = {"missed": 0, "hidden": 0, "told": 0, "unknown": 0, "displaced": 0}

    def publish(self, who, subject, first, last):
        """Messages were numbered from `first` to `last`; the ordinal of the last of them."""
        sent = self.sent.get((who, subject), PublishedNumbers())
        self.sent[who, subject], broken = sent.observe(first, last)
        self.keep(broken)
        return self.sent[who, subject].count - 1

    def forgot(self, who, subject):
        """The publisher has forgotten the subject: what follows says nothing about what was before."""
        self.cuts.setdefault((who, subject), []).append(self.sent.get((who, subject), PublishedNumbers()).count)

    def flip(self):
        """The receiver's window turned."""
        for subject in sorted(self.old):
            self.forget(subject)
        self.old, self.current = self.current, set()

    def forget(self, subject):
        """The receiver knows nothing of the subject any more."""
        for place, heard in self.heard.items():
            self.heard[place] = heard.forget() if place[1] == subject else heard
        self.spoke.pop(subject, None)
        for kept in (self.crowded, self.current, self.old):
            kept.discard(subject)

    def receive(self, who, subject, ordinal, event, told):
        """Message `ordinal` came, and the receiver said this of it."""
        place = (who, subject)
        heard = self.heard.get(place, HeardMessages(ordered=self.ordered))
        missed = heard.count_since(ordinal) if heard.known else 0
        cut = max((one for one in self.cuts.get(place, ()) if one <= ordinal), default=-1)
        begins = event.first == 1 and not event.before
        crowded = subject in self.crowded
        message = ArrivedMessage(ordinal, ordinal, missed, cut, begins=begins, crowded=crowded)
        self.heard[place], broken = heard.observe(message, told)
        self.keep(broken)
        if told.is_delivered and missed:
            self.seen["missed"] += 1
            self.seen["hidden" if told.verdict.value == "cycle" else "unknown" if told.unknown else "told"] += 1
        self.seen["displaced"] += heard.displaced and told.unknown
        self.old.discard(subject)
        self.current.add(subject)
        self.spoke[subject], gone = remember_publisher(self.spoke.get(subject, ()), who, self.places)
        if gone:
            self.heard[gone, subject] = self.heard[gone, subject].displace()
            self.crowded.add(subject)

    def keep(self, broken):
        self.problems += [f"{one.name} {one.detail}" for one in broken]
