"""Mutants: small mistakes in a protocol's machines, one at a time and all of a kind, to see what our judges notice."""
