"""Codecs: what turns a kernel and a request into a model's input, and its answer into a changed version."""
