"""What the server offers, one file per part of the protocol. Each has `register(server)`."""
