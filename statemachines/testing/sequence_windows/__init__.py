"""What sequence windows give to tests: numbers that collide, at the edges of frame and base."""

from __future__ import annotations

from hypothesis import strategies as st

from statemachines.sequence_windows.publisher_window import PublisherWindowRecord
from statemachines.sequence_windows.rotation import RotationRecord, Window
from statemachines.sequence_windows.sequence import BASE_MAX, FRAME_MAX, FRAME_NS, number_of
from statemachines.sequence_windows.subject_publishers import SubjectPublishersRecord
from statemachines.sequence_windows.subscriber_window import SubscriberWindowRecord
from statemachines.testing.protocol import Environment, TestProtocol, Values

FRAMES = (1, 2, 3, FRAME_MAX)
BASES = (1, 2, 3, 5, BASE_MAX - 1, BASE_MAX)
TIMES = (0, FRAME_NS, 2 * FRAME_NS, 3 * FRAME_NS + 7, FRAME_MAX * FRAME_NS, (FRAME_MAX + 1) * FRAME_NS)

VALUES = Values(
    ints={
        "frame": FRAMES,
        "first": BASES,
        "last": BASES,
        "t_ns": TIMES,
        "time_ns": TIMES,
        "converged_ns": TIMES,
        "at_ns": (0, 10_000_000_000, 10_000_000_001, 20_000_000_002),
        "kept": (0, 139, 140, 141),
        "floor": FRAMES,
        "count": (1, 2, 40, BASE_MAX),
        "chain": (0, *(number_of(frame, base) for frame in FRAMES for base in BASES)),
    },
    choices={Window: (Window(140), Window(1, 60_000_000_000))},
)

TESTING = TestProtocol(
    values=VALUES,
    environments={
        "publisher_window": Environment(start=st.just(PublisherWindowRecord("s"))),
        "subscriber_window": Environment(start=st.just(SubscriberWindowRecord("s", "p"))),
        "subject_publishers": Environment(start=st.just(SubjectPublishersRecord("s", 2))),
        "rotation": Environment(start=st.builds(RotationRecord, st.just(Window(140)), st.just(0))),
    },
    roles="statemachines.testing.sequence_windows.conformance:ROLES",
)
