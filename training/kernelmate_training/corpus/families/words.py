"""Common names of kernels, arrays and sizes."""

from __future__ import annotations

from random import Random

_POOLS: dict[str, tuple[str, ...]] = {
    "array": ("x", "y", "a", "b", "src", "dst", "out", "data", "inp", "result", "u", "v", "p", "q", "g", "h0", "signal", "values", "feat", "act", "w0", "field", "src0", "res", "left", "right", "cond", "noise", "latent", "buf0", "input0", "target"),
    "length": ("n", "count", "length", "total_n", "size_n", "num", "N", "elems", "len_x"),
    "sides": ("rows", "cols", "height", "width", "m", "n", "batch", "dim", "tokens", "hidden", "nr", "nc", "H", "W"),
    "scalar": ("alpha", "beta", "scale", "gamma", "bias0", "lr", "eps0", "shift", "weight0", "sigma"),
}  # fmt: skip
_SIDES = (("rows", "cols"), ("height", "width"), ("m", "n"), ("batch", "dim"), ("tokens", "hidden"), ("nr", "nc"), ("H", "W"), ("B", "D"), ("num_rows", "num_cols"), ("R", "C"))  # fmt: skip
_FORMS = ("{}", "{}_kernel", "{}_k", "k_{}", "{}_v1", "{}_naive", "run_{}", "{}_f32", "gpu_{}", "my_{}")


def pick(rng: Random, count: int, pool: str) -> list[str]:
    """Returns different words of a pool; two sides come as a matching pair."""
    if pool == "sides" and count == 2:
        return list(rng.choice(_SIDES))
    return rng.sample(_POOLS[pool], count)


def kernel_name(rng: Random, family: str) -> str:
    """Returns a kernel's name, derived from its family's."""
    base = family.replace("-", "_")
    if rng.random() < 0.15:
        base = "".join(part.capitalize() for part in base.split("_"))
        return base[0].lower() + base[1:]
    return rng.choice(_FORMS).format(base)
