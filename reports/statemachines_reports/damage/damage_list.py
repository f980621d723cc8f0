"""Damage list: every kind of damage by its name, what is done, and why some kinds are tried nowhere.

A protocol may leave out more kinds, with a reason each (`TraceRoles.left_out`).  A kind that finds nothing to damage in
a trace, such as a grant where there is none, is not tried there.
"""

from __future__ import annotations

from typing import Final

STEPS: Final = {
    "step-dest": "a step ends in another state of its machine",
    "step-source": "a step begins in another state of its machine",
    "step-states": "a step begins and ends in other states of its machine",
    "step-row": "a step takes another row of its machine",
    "step-row-of-cell": "a step takes another row of its cell, which leads elsewhere",
    "step-guard": "a step takes another row of its cell, which leads to the same state",
    "step-no-row": "a step takes no row",
    "step-event": "a step takes another event of its machine",
    "step-removed": "a step that changes the state is missing",
    "still-step-removed": "a step that changes no state, and of which something came, is missing",
    "idle-step-removed": "a step that changes no state, and of which nothing came, is missing",
    "step-repeated": "a step that changes the state is there twice",
    "still-step-repeated": "a step that changes no state is there twice",
    "step-elsewhere": "a step is taken at another node",
    "step-after-death": "a step of a process is there again after its death",
    "steps-swapped": "two steps of an instance are swapped",
    "last-half-removed": "the last half of a node's rows is missing",
    "middle-removed": "the middle third of a node's rows is missing",
}
"""What may be wrong with steps."""

MESSAGES: Final = {
    "send-removed": "a message that arrives was sent by nobody",
    "send-elsewhere": "a message is sent at another node",
    "send-to-another": "a message is sent to another party",
    "deliver-removed": "a message that was sent does not arrive, and nothing says that it was lost",
    "deliver-repeated": "a message arrives twice, and nothing says that the network copied it",
    "deliver-early": "a message arrives before it is sent",
    "deliver-elsewhere": "a message arrives at another node",
    "deliver-event": "a message arrives as one of another type",
    "deliver-range": "a message arrives with another range",
}
"""What may be wrong with messages."""

TELLS: Final = {
    "tell-twice": "the application gets something twice at once",
    "tell-again": "the application gets something again, later",
    "tell-never": "the application never gets what it acknowledged",
    "tell-number": "the application gets something under another number",
    "tell-key": "the application gets something under another key",
    "tell-instance": "another instance gives something to the application",
    "tells-swapped": "the application gets two things of a stream in the wrong order",
    "ack-early": "something is acknowledged before it is delivered",
    "publication-removed": "a publication, reservation or stamp is missing",
}
"""What may be wrong with what the application gets."""

CLOCKS: Final = {
    "clock-back-once": "the clock of a node goes back for one row",
    "clock-back": "the clock of a node goes back for good",
    "clock-ahead": "the clock of a node is an hour ahead from some row on",
    "end-late": "the last rows of a run are all later",
}
"""What may be wrong with clocks."""

WORDS: Final = {
    "term-changed": "an epoch is another",
    "grant-changed": "the number of a grant is another",
    "faults-removed": "no row of a fault is there",
    "crash-removed": "the row of a death is missing",
    "death-late": "a process dies some steps later than it did",
    "death-of-another": "another process dies",
    "fault-elsewhere": "a fault hits another node",
    "kind-unknown": "a row is of an unknown kind",
    "timer-as-step": "a timer is written as a step",
    "step-as-timer": "a step is written as a timer",
    "machine-unknown": "a step is of a machine that its protocol has not",
    "machine-empty": "a step is of no machine",
    "instance-renamed": "a step is of an instance with another name",
    "other-run": "rows of another run are mixed in",
    "other-protocol": "a step of another protocol is mixed in",
}
"""What may be wrong with single cells, and what may be mixed in."""

ASKS: Final = {
    "ask-removed": "a service answers what nobody asked",
    "ask-repeated": "a request to a service is there twice",
    "ask-event": "a request to a service is another request that it takes",
    "ask-elsewhere": "a request goes to another service",
    "ask-key": "a request to a service has another key",
    "ask-number": "a request to a service has another number",
    "answer-removed": "the step that takes an answer is missing",
    "answer-early": "an answer is taken before it is asked for",
    "answer-of-another": "a step takes an answer to another request",
}
"""What may be wrong with requests to services and their answers."""

LOGS: Final = {
    "log-missing": "the log of a life is missing",
    "log-halved": "the second half of a log is missing",
    "log-twice": "a log is there twice",
    "log-torn": "a log ends in the middle of a line",
    "log-of-another-run": "a log is of another run of the same names",
    "two-stores": "a log is of a node over another store",
}
"""What may be wrong with the logs of a real run."""

DATA: Final = {
    "event-field": "a number in the data of a step is another",
    "effect-field": "a number in the data of what a machine sends, asks or tells is another",
}
"""What may be wrong with the fields of events."""

KINDS: Final = STEPS | MESSAGES | TELLS | CLOCKS | WORDS | ASKS | DATA | LOGS

WITHOUT_DATA: Final = {
    "idle-step-removed": "no other row tells of such a step: level replay sees it, in a trace with data",
    "step-guard": "columns do not carry what guards read: level replay sees it, in a trace with data",
    "event-field": "the trace has no fields of events: make it with --data",
    "effect-field": "the trace has no fields of messages: make it with --data",
}
"""Kinds that are tried only in traces with data, with the reason."""
