"""Persistent sessions (source: EIP-0011): a session survives its node; what was missed comes from the database.

Writers number what they store for a session, and send it live; a session that resumes takes what is stored up to a
marker of each writer, and what comes live from it on.
"""

from statemachines.kernel.protocol import Protocol

PROTOCOL = Protocol(
    name="persistent_sessions",
    prefix="PS",
    about="sessions that survive their node: writers, markers, a resume that loses and repeats nothing",
    machines={
        "writer": "statemachines.persistent_sessions.writer:WRITER",
        "session_resume": "statemachines.persistent_sessions.resume:RESUME",
        "writer_flow": "statemachines.persistent_sessions.writer_flow:WRITER_FLOW",
        "takeover": "statemachines.persistent_sessions.takeover:TAKEOVER",
        "delivery": "statemachines.persistent_sessions.delivery:DELIVERY",
        "in_flight_message": "statemachines.persistent_sessions.in_flight:IN_FLIGHT",
        "collector": "statemachines.persistent_sessions.collector:COLLECTOR",
        "session_life": "statemachines.persistent_sessions.session_life:SESSION_LIFE",
        "publication": "statemachines.persistent_sessions.publication:PUBLICATION",
        "client_inbox": "statemachines.persistent_sessions.client_inbox:CLIENT_INBOX",
        "group_member": "statemachines.persistent_sessions.group_member:GROUP_MEMBER",
    },
    processes={"session_host": "statemachines.persistent_sessions.session_host_process:SESSION_HOST"},
    page="statemachines.persistent_sessions:clauses.md",
    commands={"sessions": "statemachines.drivers.persistent_sessions.session_command:app"},
    areas={
        "spec": "statemachines_spec.persistent_sessions:SPEC",
        "sim": "statemachines_sim.persistent_sessions:SIM",
        "drivers": "statemachines.drivers.persistent_sessions:DRIVERS",
        "testing": "statemachines.testing.persistent_sessions:TESTING",
        "reports": "statemachines_reports.persistent_sessions:REPORTS",
        "demo": "statemachines.demo.persistent_sessions:DEMO",
    },
)
