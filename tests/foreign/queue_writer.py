"""A write into a queue in shared memory; see queue_operation.py."""

from base64 import b64decode, b64encode

from plain_lines import serve
from queue_operation import CELL, HEADER, SEVERAL, Operation, checksum_of, length_of, marks_of


class Write(Operation):
    pool, done = "write", "write_done"

    def operate(self):
        call = yield
        data, messages = b64decode(call["payload"]), call["messages"]
        if messages != 1:
            data = messages.to_bytes(CELL, "little") + data
        size = len(data) + SEVERAL * (messages != 1)
        capacity, length = self.queue["capacity"], length_of(len(data))
        if length > capacity:
            return {"outcome": "oversize"}
        if not (yield from self.take_cursor()):
            return {"outcome": "no_cursor"}
        is_moved = False
        while not is_moved:
            yield from self.begin_attempt()
            first, end = self.write_head, self.write_head + length
            if end > self.read_head + capacity or not (
                yield from self.is_way_free("read", lambda position, end=end: end <= position + capacity)
            ):
                return (yield from self.give_back("full"))
            if not (yield from self.is_ours()):
                return {"outcome": "fenced"}
            yield from self.store(self.own + "/position", first)
            if not (yield from self.is_ours()):
                return {"outcome": "fenced"}
            is_moved = yield from self.swap("write_head", first, end)
        self.tell("reserved", first=first, last=end - 1)
        for number, value in enumerate((size, checksum_of(first, size, data), *marks_of(first))):
            yield from self.store(self.address(first + number * CELL), value)
        if data:
            yield "copy_in", {"position": first + HEADER, "data": b64encode(data).decode()}
        is_released = yield from self.release()
        return {"outcome": "written", "position": first} if is_released else {"outcome": "fenced"}


serve(Write)
