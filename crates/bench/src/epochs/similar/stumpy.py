"""Computes a matrix profile for each line that is read, and prints the seconds that it took."""

import sys
import time

import numpy as np
import stumpy

series = np.loadtxt(sys.argv[1])
width = int(sys.argv[2])
# Compiles.
stumpy.stump(series[:2000], m=width)
print("ready", stumpy.__version__, flush=True)
for _ in sys.stdin:
    begun = time.perf_counter()
    profile = stumpy.stump(series, m=width)
    seconds = time.perf_counter() - begun
    print(seconds, float(np.max(profile[:, 0].astype(float))), flush=True)
