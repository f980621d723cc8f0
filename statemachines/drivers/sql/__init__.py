"""SQL: connections to databases, transactions on them, one worker thread each; what is kept there is a protocol's."""
