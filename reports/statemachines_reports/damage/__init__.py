"""Damage: right traces that are made wrong in one place, and what the judges say of each."""
