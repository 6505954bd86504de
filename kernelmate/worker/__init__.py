"""The worker process in which candidates run, and the client that starts, feeds and kills it."""
