"""A lease lock with fencing tokens: a server that grants, holders that may stand still, a vault to be guarded."""

from statemachines.kernel import Protocol

PROTOCOL = Protocol(
    name="lock_service",
    prefix="LK",
    about="a lease lock with fencing tokens, and the vault that it guards",
    machines={"server": "lock_service.server:SERVER", "holder": "lock_service.holder:HOLDER"},
    page="lock_service:clauses.md",
    areas={
        "sim": "lock_service.sim:SIM",
        "spec": "lock_service.spec:SPEC",
        "reports": "lock_service.reports:REPORTS",
        "drivers": "lock_service.nodes:DRIVERS",
    },
)
