"""Words of steps texts of missed samples."""

from statemachines.missed_samples.cache import CacheQuery, Published


def put(first, last=None, source="p", key="demo/a", **given):
    """Samples come by."""
    return Published(key, source, first, first if last is None else last, **given)


def ask(parameters="", source="p", expression="demo/a", t_ns=0):
    """Somebody asks a cache."""
    return CacheQuery("s", 7, source, expression, parameters, t_ns)
