"""The testing kit: what an application (and we) test against."""
