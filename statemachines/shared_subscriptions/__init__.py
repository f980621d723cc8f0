"""Durable shared subscriptions (EIP-0028): borrowers, streams, sessions, leaders, members, groups, witnesses."""

from statemachines.kernel.protocol import Protocol

_HERE = "statemachines.shared_subscriptions"

PROTOCOL = Protocol(
    name="shared_subscriptions",
    prefix="SS",
    about="durable shared subscriptions: a group of consumers shares streams, and its progress is kept",
    machines={
        "borrower": f"{_HERE}.borrower:BORROWER",
        "stream": f"{_HERE}.stream:STREAM",
        "session": f"{_HERE}.session:SESSION",
        "private": f"{_HERE}.private_subscription:PRIVATE",
        "leader": f"{_HERE}.leader:LEADER",
        "member": f"{_HERE}.member:MEMBER",
        "assignment": f"{_HERE}.assignment:ASSIGNMENT",
        "group": f"{_HERE}.group:GROUP",
        "witness": f"{_HERE}.configuration:WITNESS",
        "standby": f"{_HERE}.listing:STANDBY",
    },
    processes={
        "registry": f"{_HERE}.registry:REGISTRY",
        "agent": f"{_HERE}.agent_process:AGENT",
        "handler": f"{_HERE}.handler_process:HANDLER",
    },
    page="statemachines.shared_subscriptions:clauses.md",
    areas={
        "sim": "statemachines_sim.shared_subscriptions:SIM",
        "spec": "statemachines_spec.shared_subscriptions:SPEC",
        "reports": "statemachines_reports.shared_subscriptions:REPORTS",
        "drivers": "statemachines.drivers.shared_subscriptions:DRIVERS",
        "testing": "statemachines.testing.shared_subscriptions:TESTING",
        "demo": "statemachines.demo.shared_subscriptions:DEMO",
    },
    commands={"group": "statemachines.drivers.shared_subscriptions.group_command:app"},
)
