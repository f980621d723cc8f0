"""A read from a queue in shared memory; see queue_operation.py."""

from base64 import b64decode, b64encode

from plain_lines import serve
from queue_operation import CELL, HEADER, SEVERAL, Operation, checksum_of, length_of, marks_of


class Read(Operation):
    pool, done = "read", "read_done"

    def operate(self):
        yield
        if not (yield from self.take_cursor()):
            return {"outcome": "no_cursor"}
        self.has_looked = False
        while True:
            yield from self.begin_attempt()
            first, head = self.read_head, self.write_head
            if first == head or not (yield from self.is_way_free("write", lambda position: position > self.read_head)):
                return (yield from self.give_back("empty"))
            block = yield from self.find_block(first)
            if not block:
                if self.has_looked or not (
                    yield from self.is_way_free("write", lambda position: position >= self.write_head)
                ):
                    return (yield from self.give_back("empty"))
                block = yield from self.find_block(first)
            if not block:
                to = yield from self.find_next(first)
                if (yield from self.swap("read_head", first, to)):
                    self.tell("skipped", first=first, last=to - 1)
                continue
            size, checksum = block
            messages = (yield from self.load(self.address(first + HEADER))) if size & SEVERAL else 1
            if not (yield from self.is_ours()):
                return {"outcome": "fenced"}
            yield from self.store(self.own + "/messages", messages)
            yield from self.store(self.own + "/position", first)
            if not (yield from self.is_ours()):
                return {"outcome": "fenced"}
            end = first + length_of(size)
            if not (yield from self.swap("read_head", first, end)):
                continue
            self.tell("taken", first=first, last=end - 1)
            data = yield from self.copy(first, size)
            block = {"position": first, "messages": messages}
            if checksum_of(first, size, data) != checksum:
                if not (yield from self.is_ours()):
                    return {"outcome": "discarded", **block}
                self.tell("skipped", first=first, last=end - 1)
            elif (yield from self.release()):
                payload = data[CELL:] if size & SEVERAL else data
                return {"outcome": "delivered", **block, "payload": b64encode(payload).decode()}
            else:
                return {"outcome": "discarded", **block}

    def copy(self, position, size):
        return b64decode((yield "copy_out", {"position": position + HEADER, "size": size % SEVERAL})["data"])

    def find_block(self, position):
        """Size and checksum of the block that begins there, or None."""
        for number, half in enumerate(marks_of(position), 2):
            if (yield from self.load(self.address(position + number * CELL))) != half:
                return None
        size = yield from self.load(self.address(position))
        if position + length_of(size) > self.write_head or SEVERAL <= size < SEVERAL + CELL:
            return None
        return size, (yield from self.load(self.address(position + CELL)))

    def find_next(self, first):
        """Where the next whole block begins, or the slice ends, or the write head is."""
        for position in range(first + CELL, self.write_head - HEADER + 1, CELL):
            if position - first >= self.init["slice_bytes"]:
                self.has_looked = True
                return position
            block = yield from self.find_block(position)
            if block and checksum_of(position, block[0], (yield from self.copy(position, block[0]))) == block[1]:
                return position
        return self.write_head


serve(Read)
