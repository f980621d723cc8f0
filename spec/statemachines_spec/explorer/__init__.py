"""The explorer: what a closed system is made of, and the search through all that it can do."""
