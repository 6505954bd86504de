"""Runs a kernel's PTX on the CPU, vectorised over the threads of many blocks."""

from kernelmate.backends.emulator.backend import EmulatorBackend

__all__ = ["EmulatorBackend"]
