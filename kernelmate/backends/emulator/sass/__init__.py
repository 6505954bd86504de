"""SASS that a GPU would execute in a launch: the CUBIN's instructions, counted by following its branches.

`code` parses instructions, `graph` finds blocks and the operations that branches depend on, `arithmetic` computes
these, `walk` follows the warps of a launch, and `mix` counts instructions and compares them with the emulator's PTX
counts.
"""
