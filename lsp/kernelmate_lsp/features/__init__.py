"""Features of the server, one file per part of the protocol. Each has `register(server)`."""
