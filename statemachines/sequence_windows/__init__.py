"""Sequence windows (source: message loss): every loss is counted exactly, or said to be unknown.

A publisher numbers its messages with frame and base, receivers classify what comes, both forget by windows.
"""

from statemachines.kernel.protocol import Protocol

PROTOCOL = Protocol(
    name="sequence_windows",
    prefix="SW",
    about="numbers of 64 bits with a time frame, windows that forget, and losses that are counted and advised",
    machines={
        "publisher_window": "statemachines.sequence_windows.publisher_window:PUBLISHER_WINDOW",
        "subscriber_window": "statemachines.sequence_windows.subscriber_window:SUBSCRIBER_WINDOW",
        "subject_publishers": "statemachines.sequence_windows.subject_publishers:SUBJECT_PUBLISHERS",
        "rotation": "statemachines.sequence_windows.rotation:ROTATION",
        "late_join": "statemachines.sequence_windows.late_join:LATE_JOIN",
        "loss_notifier": "statemachines.sequence_windows.loss_notifier:LOSS_NOTIFIER",
        "inbox_window": "statemachines.sequence_windows.inbox_window:INBOX_WINDOW",
    },
    page="statemachines.sequence_windows:clauses.md",
    areas={
        "sim": "statemachines_sim.sequence_windows:SIM",
        "spec": "statemachines_spec.sequence_windows:SPEC",
        "drivers": "statemachines.drivers.sequence_windows:DRIVERS",
        "testing": "statemachines.testing.sequence_windows:TESTING",
        "reports": "statemachines_reports.sequence_windows:REPORTS",
        "demo": "statemachines.demo.sequence_windows:DEMO",
    },
    commands={"show-loss": "statemachines.drivers.sequence_windows.show_loss:app"},
)
