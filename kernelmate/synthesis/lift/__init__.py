"""Kernels read from their CUDA text into functions in NumPy."""
