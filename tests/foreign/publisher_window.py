"""The window of a publisher in plain Python, by docs/test_your_implementation.md and SW-01 to SW-12 alone."""

from plain_lines import Instance, serve

FRAME_BITS, BASE_BITS = 29, 35
FRAME_MAX, BASE_MAX = 2**FRAME_BITS - 1, 2**BASE_BITS - 1
FRAME_NS = 2**33


def frame_of(t_ns):
    return max(1, t_ns // FRAME_NS)


class Window(Instance):
    def __init__(self, init, now):
        super().__init__(now)
        self.frame, self.base, self.flips = 0, 0, 0

    def on_flip(self, event):
        self.flips += 1
        if self.flips == 2:
            self.frame, self.base = 0, 0

    def on_publish(self, event):
        frame, time_ns, chain = self.frame, 0, 0
        converged = frame_of(event["converged_ns"])
        if not frame:
            frame = max(frame_of(event["t_ns"]), event["floor"])
        elif self.base == BASE_MAX or frame < converged:
            frame = max(frame_of(event["t_ns"]), frame + 1, converged)
            chain = (self.frame << BASE_BITS) + self.base
        if frame > FRAME_MAX:
            self.tell("exhausted")
            return
        self.flips = 0
        if frame != self.frame:
            self.frame, self.base = frame, 0
            time_ns = max(event["t_ns"], frame * FRAME_NS)
        first = self.base + 1
        self.base = min(self.base + event["count"], BASE_MAX)
        self.tell("stamped", frame=frame, first=first, last=self.base, time_ns=time_ns, chain=chain)


serve(Window)
