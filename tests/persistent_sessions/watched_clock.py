"""A process that commits, and the clocks that it sees."""

from statemachines.persistent_sessions.session_host_record import Steady, StoreTime, next_time

S = 1_000_000_000
DAY = 86_400 * S


class WatchedClock:
    """The clock of the database, which somebody sets, beside a steady one."""

    def __init__(self):
        self.steady, self.clock = 5 * S, 1_000 * S
        self.known, self.seen = StoreTime(0), None

    def move(self, passes, set_by=0):
        self.steady += passes
        self.clock += passes + set_by
        return self

    def commit(self):
        expected = None if self.seen is None else self.seen.expected_time_ns(self.steady)
        self.known = next_time(self.known, self.clock, expected)
        lead = self.known.time_ns - self.steady
        self.seen = Steady(lead, self.steady) if self.seen is None else self.seen.look(self.known.time_ns, self.steady)
        return self.known


def commit_after(*moves):
    """What is known after a first commit, and after one behind each move: how long it takes, and by how much the clock
    is set."""
    one = WatchedClock()
    return one.commit(), *(one.move(*move).commit() for move in moves)
