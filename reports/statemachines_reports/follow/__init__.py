"""Follow: a folder that traces or logs still come into is judged as they come, by Structured Streaming."""
