"""The conformance kit: what tests of a machine, an implementation or a whole system are made of (extra `testing`)."""
