"""Recording in the traced program: launches, executed branches, compilations and times, written as one JSON file a process.

The package uses only the standard library and relative imports, so that a program whose environment lacks KernelMate can load
it from its folder.
"""
