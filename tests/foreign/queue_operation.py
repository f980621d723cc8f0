"""A write or a read of a queue in shared memory, in plain Python, by docs/test_your_implementation.md and the clauses
CR-01 to CR-59 alone: what both have in common.  A generator yields each access, and is sent its answer."""

from zlib import crc32

from plain_lines import Instance

CELL, HEADER = 4, 16
NONE = 2**64 - 1
TICK_NS = 65_536
SEVERAL = 1 << 31


def marks_of(position):
    """The lower and the higher half of the commit word."""
    word = (position * 0x9E3779B97F4A7C15 ^ 0x9AB51E55C0DEB10C) % 2**64
    return word % 2**32, word >> 32


def checksum_of(position, size, data):
    return crc32(position.to_bytes(8, "little") + size.to_bytes(4, "little") + data)


def length_of(size):
    return HEADER + -(-(size % SEVERAL) // CELL) * CELL


class Operation(Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.init, self.queue = init, init["queue"]
        self.accesses = self.operate()
        next(self.accesses)

    def take(self, line):
        try:
            kind, fields = self.accesses.send(line["event"])
            self.ask("memory", kind, **fields)
        except StopIteration as ended:
            self.tell(self.done, **ended.value)
            self.stop()

    # -- accesses

    def load(self, address):
        answer = yield "load", {"address": address}
        self.time_ns = answer["time_ns"]
        return answer["value"]

    def store(self, address, value):
        yield "store", {"address": address, "value": value}

    def swap(self, address, expected, value):
        return (yield "compare_and_swap", {"address": address, "expected": expected, "value": value})["done"]

    def address(self, position):
        return f"data/{position % self.queue['capacity']}"

    # -- cursors

    def take_cursor(self):
        """Whether it has one."""
        for number in range(self.queue[self.pool + "_cursors"]):
            self.own = f"{self.pool}/{number}"
            word = yield from self.load(self.own + "/state")
            time_ns = self.time_ns
            if word and not ((yield from self.is_stale(word, time_ns)) and (yield from self.free(self.own, word))):
                continue
            owner = 1 << 63 | self.init["slot"] << 55 | self.init["incarnation"] % 4_096 << 43
            self.word = owner | -(-time_ns // TICK_NS) % 2**43
            if (yield from self.swap(self.own + "/state", 0, self.word)):
                yield from self.store(self.own + "/position", NONE)
                return True
        return False

    def is_stale(self, word, time_ns):
        if time_ns - word % 2**43 * TICK_NS <= self.queue["threshold_ns"]:
            return False
        if self.queue["threshold_only"]:
            return True
        slot = word >> 55 & 255
        if not (yield from self.load(f"lock/{slot}")):
            return True
        return (yield from self.load(f"incarnation/{slot}")) % 4_096 != word >> 43 & 4_095

    def free(self, cursor, word):
        """Whether the state was still the word."""
        if cursor.startswith("read"):
            position = yield from self.load(cursor + "/position")
            if position != NONE:
                yield from self.count_lost(cursor, position)
        return (yield from self.swap(cursor + "/state", word, 0))

    def count_lost(self, cursor, position):
        messages = yield from self.load(cursor + "/messages")
        is_counted = (yield from self.load("read_head")) <= position
        while not is_counted:
            lost = yield from self.load("lost")
            is_counted = yield from self.swap("lost", lost, lost + messages)

    def is_way_free(self, pool, is_apart):
        """Whether no cursor of the other pool stands where `is_apart` says no."""
        for number in range(self.queue[pool + "_cursors"]):
            cursor = f"{pool}/{number}"
            while word := (yield from self.load(cursor + "/state")):
                time_ns = self.time_ns
                position = yield from self.load(cursor + "/position")
                if position == NONE or is_apart(position):
                    break
                if not (yield from self.is_stale(word, time_ns)):
                    return False
                yield from self.free(cursor, word)
        return True

    def is_ours(self):
        return (yield from self.load(self.own + "/state")) == self.word

    def release(self):
        return (yield from self.swap(self.own + "/state", self.word, 0))

    def give_back(self, outcome):
        return {"outcome": outcome if (yield from self.release()) else "fenced"}

    # -- heads

    def begin_attempt(self):
        self.read_head, self.write_head = 0, NONE
        while self.write_head > self.read_head + self.queue["capacity"]:
            self.read_head = yield from self.load("read_head")
            self.write_head = yield from self.load("write_head")
