"""KernelMate: change a CUDA kernel by asking for what you want, and take only what was proved right and measured."""

__version__ = "0.1.0"
