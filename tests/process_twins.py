"""Twins: a process, and one that is made anew from its value before each input; both must go on equal."""

from statemachines.kernel import GaplessError, ProcessRunner


class Twins:
    """`outs` counts what came out."""

    def __init__(self, live):
        self.live = live
        self.outs = 0

    def do(self, act):
        """What comes out of both: the same, or the same refusal; and the same value is left."""
        state = self.live.state()
        twin = ProcessRunner.from_state(self.live.process, state, check=True)
        assert twin.state() == state
        mine, theirs = attempted(act, self.live), attempted(act, twin)
        assert theirs == mine
        assert twin.state() == self.live.state()
        self.outs += len(mine)
        return mine if isinstance(mine, list) else []

    def feed(self, party, event, now):
        return self.do(lambda process: process.feed(party, event, now))

    def call(self, event, now):
        return self.do(lambda process: process.call(event, now))

    def is_read_back(self):
        """Its value is equal when it was written and read; while effects are owed it is not written."""
        state, process = self.live.state(), self.live.process
        return bool(state.owed) or process.decode(process.encode(state)) == state


def attempted(act, process):
    """What comes of it, or how it is refused."""
    try:
        return act(process)
    except GaplessError as error:
        return type(error), str(error)
