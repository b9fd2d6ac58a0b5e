# Bins of time by Python's zoneinfo. Reads cases as lines of JSON and writes the bins of the times of each.
import json
import sys
from functools import lru_cache
from calendar import monthrange
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1)
UTC_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
DAY = 86400


def offset(zone, at):
    return round((UTC_EPOCH + timedelta(seconds=at)).astimezone(zone).utcoffset().total_seconds())


@lru_cache(maxsize=None)
def changes(zone, day):
    """When the clocks are changed around a day, by halving hours at whose ends they differ."""
    found = []
    for begin in range((day - 2) * DAY, (day + 3) * DAY, 3600):
        low, high = begin, begin + 3600
        if offset(zone, low) == offset(zone, high):
            continue
        while high - low > 1:
            middle = (low + high) // 2
            if offset(zone, middle) == offset(zone, low):
                low = middle
            else:
                high = middle
        found.append(high)
    return found


def month_start(origin, months):
    index = origin.year * 12 + origin.month - 1 + months
    year, month = index // 12, index % 12 + 1
    return origin.replace(year=year, month=month, day=min(origin.day, monthrange(year, month)[1]))


def floor(case, local):
    """The local second at which a local second's bin begins."""
    if not case["months"]:
        return case["origin"] + (local - case["origin"]) // case["width"] * case["width"]
    origin = EPOCH + timedelta(seconds=case["origin"])
    at = EPOCH + timedelta(seconds=local)
    step = ((at.year - origin.year) * 12 + at.month - origin.month) // case["months"]
    while month_start(origin, step * case["months"]) > at:
        step -= 1
    return round((month_start(origin, step * case["months"]) - EPOCH).total_seconds())


def start(case, zone, at):
    """The bin of a time: of the instants that show its local start, the one for this row; the change of the clocks if there is none."""
    here = offset(zone, at)
    local = floor(case, at + here)
    found = changes(zone, local // DAY)
    around = {offset(zone, local + shift) for shift in range(-30 * 3600, 30 * 3600 + 1, 1800)}
    around |= {offset(zone, change + shift) for change in found if abs(change - local) < 30 * 3600 for shift in (-1, 0)}
    instants = sorted(local - o for o in around if offset(zone, local - o) == o)
    if not instants:
        return next(c for c in found if c + offset(zone, c - 1) <= local < c + offset(zone, c))
    repeated = instants[-1] - instants[0]
    if not case["months"] and case["width"] < DAY and case["width"] <= repeated and local - here in instants:
        return local - here
    return instants[0]


for line in sys.stdin:
    case = json.loads(line)
    zone = ZoneInfo(case["zone"])
    bins = [start(case, zone, at) for at in case["times"]]
    print(json.dumps(bins), flush=True)
