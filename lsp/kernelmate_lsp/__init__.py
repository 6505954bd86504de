"""The language server. It comes with a later version; nothing is served yet."""
