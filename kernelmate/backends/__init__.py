"""Backends: the GPU and the emulator."""
