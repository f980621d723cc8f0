"""Tickets: a dispenser gives out numbers, and each number once; a protocol that nobody here knows."""

from statemachines.kernel import Protocol

PROTOCOL = Protocol(
    name="made_up",
    prefix="MU",
    about="numbers that are given out once",
    machines={"dispenser": "made_up.machines:DISPENSER", "taker": "made_up.machines:TAKER"},
    areas={"drivers": "made_up.nodes:DRIVERS", "spec": "made_up.spec:SPEC"},
    commands={"tickets": "made_up.verbs:app"},
)
