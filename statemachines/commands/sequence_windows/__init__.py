"""Commands of sequence windows: the roles of `gapless node`."""
