"""Generates kernels from their specification: traces the contract's reference, and writes a new kernel from the graph."""
