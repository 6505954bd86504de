"""Kernels written from their specification: the contract's reference is traced, and the kernel written anew from the graph."""
