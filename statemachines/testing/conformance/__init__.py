"""Conformance: an implementation in any language against a declared machine.

`gapless conform ROLE -- COMMAND` starts the implementation, says one JSON line for each input and reads one JSON line
for each answer.  The kit owns time and timers, and plays everybody else.  The page for its users is
`docs/test_your_implementation.md`; `interface` has the lines, `relation` what an implementation may choose,
`conformance_run` one run, `role_graph` and `tour` the run that takes every row, `campaign` all of it.
"""
