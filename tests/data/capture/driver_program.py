"""Launches the stand-in's kernel as a program on a GPU does. Arguments: the library, the driver, and how often."""

import ctypes
import os
import sys

import numpy as np

driver = ctypes.CDLL(sys.argv[2], mode=ctypes.RTLD_GLOBAL)
assert ctypes.CDLL(sys.argv[1]).InitializeInjection() == 1
driver.standin_allocate.restype = ctypes.c_uint64
driver.standin_load_module(b"..text.scale..", ctypes.c_size_t(14))
driver.standin_load_module(b"something else", ctypes.c_size_t(14))
PLAIN, EXTENDED, COOPERATIVE, PACKED, GRAPH = range(5)


def launch(way: int, n: int, name: bytes = b"_Z5scalePKfPffi", padding: int = 0, seed: int = 0) -> None:
    x, y = (driver.standin_allocate(ctypes.c_size_t(4 * (n + padding))) for _ in range(2))
    values = np.random.default_rng(seed or n).random(n, np.float32)
    ctypes.memmove(x, values.ctypes.data, values.nbytes)
    blocks = -(-n // 64)
    driver.standin_launch(way, name, blocks, ctypes.c_uint64(x), ctypes.c_uint64(y), ctypes.c_float(2), ctypes.c_int(n))


kind = sys.argv[3]
if kind == "ways":
    for way in (PLAIN, EXTENDED, COOPERATIVE, PACKED):
        launch(way, 100 + way)
    launch(PLAIN, 10, b"other")
    launch(GRAPH, 10)
    driver.standin_capture(1)
    launch(PLAIN, 104)
elif kind == "sizes":
    for seed, n in enumerate((100, 333, 100, 333)):
        launch(PLAIN, n, padding=int(sys.argv[4]), seed=seed + 1)
elif kind == "killed":
    launch(PLAIN, 100)
    launch(PLAIN, 200)
    os.kill(os.getpid(), 9)
