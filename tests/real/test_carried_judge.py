"""The judge of sessions that share streams: it finds what it is there for, and lets pass what may be."""

import pytest
from carried_judge import Acked, Ended, Got, Handed, Hurt, Run, judge

GROUP, OWN = "$share/g/a", "own/x"


class Told:
    """A story that is told step by step; a second passes with each."""

    def __init__(self):
        self.at, self.events, self.handed, self.hurts = 0.0, [], [], []

    def tick(self, seconds=1.0):
        self.at += seconds
        return self.at

    def hand(self, *numbers, topic="a", answered=True):
        for number in numbers:
            at = self.tick()
            self.handed.append(Handed(at, topic, number, at if answered else None))
        return self

    def got(self, *numbers, client="x", connection=1, by=GROUP, topic="a", dup=False, packet=None, ack=True):
        for number in numbers:
            one = Got(self.tick(), client, connection, by, topic, number, packet or number + 1, dup)
            self.events.append(one)
            if ack:
                self.events.append(Acked(self.tick(), one))
        return self

    def end(self, how, connection=1, client="x"):
        self.events.append(Ended(self.tick(), client, connection, how))
        return self

    def hurt(self, what="killed"):
        self.hurts.append(Hurt(self.tick(), self.tick(), what))
        return self.rest()

    def rest(self):
        self.tick(100.0)
        return self

    def judged(self):
        run = Run(self.handed, self.events, self.hurts, {GROUP: {"a"}}, {OWN: {OWN}}, {"x": 2, "y": 2})
        return judge(run)


def told():
    return Told()


RIGHT = {
    "all": told().hand(0, 1, 2).got(0, 1, 2),
    "shared": told().hand(0, 1, 2, 3).got(0, 3).got(1, 2, client="y", connection=2),
    "nobody knows whether it is stored": told().hand(0).hand(1, answered=False).got(0),
    "and it is": told().hand(0, answered=False).got(0),
    "back, since somebody died": told().hand(0, 1, 2).hurt().got(2).got(0, 1, packet=9),
    "its own twice, since a store was silent": told().hand(0, topic=OWN).hurt("lapsed").got(0, 0, by=OWN, topic=OWN),
    "marked, and not acknowledged": told().hand(0).got(0, ack=False).end("left").got(0, connection=2, dup=True),
    "marked, and the acknowledgement was lost": told().hand(0).got(0).end("aborted").got(0, connection=2, dup=True),
    "marked, two copies of two packets": told().hand(0).hurt().got(0, dup=True).got(0, dup=True, packet=7),
    "as many as it receives": told().hand(0, 1).got(0, 1, ack=False),
    "its own": told().hand(0, 1, topic=OWN).got(0, 1, by=OWN, topic=OWN),
    "its own twice, since a node ended": told().hand(0, topic=OWN).hurt("closed").got(0, 0, by=OWN, topic=OWN),
}

WRONG = {
    "never came": told().hand(0, 1).got(0),
    "its own never came": told().hand(0, topic=OWN),
    "nobody has published it": told().hand(0).got(0, 1),
    "published it for that": told().hand(0).got(0).got(0, by=OWN),
    "nobody has published it for": told().got(0).hand(0),
    "and receives 2": told().hand(0, 1, 2).got(0, 1, 2, ack=False),
    "and then to y, and has one row": told().hand(0).got(0).got(0, client="y", connection=2),
    "and then to x, and has one row": told().hand(0).hurt().got(0, 0),
    "and then to x, and nobody was hurt": told().hurt().hand(0, topic=OWN).got(0, 0, by=OWN, topic=OWN).rest().hurt(),
    "behind 1, and nobody was hurt": told().hand(0, 1).got(1, 0),
    "behind 2, and nobody": told().hand(0, 1, 2, topic=OWN).got(0, 2, 1, by=OWN, topic=OWN),
    "which had acknowledged it and left": told().hand(0).got(0).end("left").got(0, connection=2, dup=True),
    "over the connection that had acknowledged it": told().hand(0).got(0).got(0, dup=True),
}


@pytest.mark.parametrize("story", RIGHT.values(), ids=RIGHT)
def test_what_may_be_is_let_pass(story):
    assert story.judged() == []


@pytest.mark.parametrize(("words", "story"), WRONG.items(), ids=WRONG)
def test_what_is_wrong_is_said(words, story):
    wrong = story.judged()
    assert any(words.partition("its own ")[2] or words in one for one in wrong), wrong
