"""What stumpy, NumPy and dtaidistance say: a line of numbers for each line that is read.

A line is `kind width band|pattern|series`, numbers with blanks between them.
"""

import sys
import warnings

import numpy as np
import stumpy
from dtaidistance import dtw

warnings.filterwarnings("ignore")


def numbers(text):
    return np.array([float(word) for word in text.split()], dtype=np.float64)


def normalised(values):
    return (values - values.mean()) / values.std()


def warped(one, other, band):
    """The definition of dynamic time warping within a band."""
    count = len(one)
    matrix = np.full((count + 1, count + 1), np.inf)
    matrix[0, 0] = 0.0
    for row in range(1, count + 1):
        for column in range(max(1, row - band), min(count, row + band) + 1):
            best = min(matrix[row - 1, column], matrix[row, column - 1], matrix[row - 1, column - 1])
            matrix[row, column] = (one[row - 1] - other[column - 1]) ** 2 + best
    return np.sqrt(matrix[count, count])


def neighbours(series, width):
    profile = stumpy.stump(series, m=width)
    return profile[:, 0].astype(np.float64), profile[:, 1].astype(np.int64)


def motifs(series, width):
    """Pairs, the nearest first, none of whose places begins next to one of another."""
    distances, indexes = neighbours(series, width)
    zone = int(np.ceil(width / 4))
    chosen, told = [], []
    for place in np.argsort(distances, kind="stable"):
        pair = sorted([place, indexes[place]])
        if not np.isfinite(distances[place]) or len(told) == 9:
            break
        if all(abs(known - one) > zone for known in chosen for one in pair):
            chosen += pair
            told += [pair[0], pair[1], distances[place]]
    return told


def discords(series, width):
    distances, _ = neighbours(series, width)
    zone = int(np.ceil(width / 4))
    chosen, told = [], []
    for place in np.argsort(-distances, kind="stable"):
        if not np.isfinite(distances[place]):
            continue
        if len(told) == 6:
            break
        if all(abs(known - place) > zone for known in chosen):
            chosen.append(place)
            told += [place, distances[place]]
    return told


def answer(kind, width, band, pattern, series):
    if kind == "mass":
        return stumpy.core.mass(pattern, series)
    if kind == "raw":
        return stumpy.core.mass_absolute(pattern, series)
    if kind == "pearson":
        return [np.corrcoef(pattern, series)[0, 1]]
    if kind == "dtw":
        one, other = normalised(pattern), normalised(series)
        by_matrix = warped(one, other, band)
        by_library = dtw.distance(one, other, window=band + 1)
        assert abs(by_matrix - by_library) < 1e-9, (by_matrix, by_library)
        return [by_matrix]
    if kind == "profile":
        return neighbours(series, width)[0]
    if kind == "motifs":
        return motifs(series, width)
    return discords(series, width)


for line in sys.stdin:
    head, pattern, series = line.split("|")
    kind, width, band = head.split()
    found = answer(kind, int(width), int(band), numbers(pattern), numbers(series))
    print(" ".join(repr(float(number)) for number in found), flush=True)
