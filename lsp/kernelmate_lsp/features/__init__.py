"""Features of the server, one module per part of the protocol; each has `register(server)`."""
