"""Compiles stretches of a kernel to native code, one warp after the other, lanes in lockstep.

Everything here is optional: a kernel runs the same, more slowly, without it. `refine` cuts basic blocks into pieces that
are native as a whole or not at all; `build` makes one LLVM function of them, which runs every warp until its lanes reach
what only the scheduler can do (a barrier, an exit, an operation with no native form); `engine` compiles and caches it;
`native` hands the launch's registers and memory to it. An access that is wrong is never made here: the piece is left
untouched and done again by the NumPy operations, which report it exactly.
"""
