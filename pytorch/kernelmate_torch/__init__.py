"""PyTorch: kernels as custom operators of a program, and modules as kernels."""
