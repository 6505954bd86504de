"""Compiles parts of a kernel to native code, one warp after another, lanes in lockstep.

Native code is optional: without it a kernel runs with the same results, more slowly. `refine` cuts basic blocks into
pieces that are completely native or not at all; `build` generates one LLVM function from them, which runs every warp
until its lanes need the scheduler (a barrier, an exit, an operation without a native form); `llvm` compiles and
caches it; `native` passes the launch's registers and memory to it. Native code never makes an invalid access: it
abandons the piece without effects, and NumPy operations repeat it and report the error exactly.
"""
