"""Specification and checking: what reads the declarations to judge them."""
