"""What machines ask: remote stores, shared memory, query fabrics."""
