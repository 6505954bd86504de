"""Lifting: converts CUDA kernels to equivalent NumPy functions."""
