"""What a GPU would execute of a launch: the SASS of the CUBIN, counted as often as its branches lead to it.

`code` takes instructions apart, `graph` finds blocks and what branches depend on, `arithmetic` computes that, `walk` follows
the warps of a launch, and `mix` counts instructions and holds them against what the emulator counted of the PTX.
"""
