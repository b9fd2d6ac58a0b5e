"""Answers of queries kept by `thalweg cache`, in front of any database.

    import thalweg.cache

    cache = thalweg.cache.Cache()
    series = cache.query("SELECT load FROM cpu", start, end, fetch=lambda start, end: ask_the_database(start, end))

A series is a dictionary: name, columns (the first is "time") and values (rows). Times are whole numbers in any one unit; ranges run from
start to just before end.
"""

import hashlib
import json
import logging
import math
import socket


LOG = logging.getLogger(__name__)


class CacheError(Exception):
    """The cache refused what was sent, or what it answered makes no sense."""


class Cache:
    """A connection to `thalweg cache`; for one thread at a time. It is made when it is needed, and again after it broke."""

    def __init__(self, host="127.0.0.1", port=7785, timeout=30.0, wait_ms=10_000):
        self._address = (host, port)
        self._timeout = timeout
        self._wait_ms = wait_ms
        self._socket = None
        self._file = None

    def query(self, statement, start, end, fetch):
        """The answer to a statement for a range. `fetch(start, end)` gives what is missing. A cache that is not there is done without."""
        return self.query_with_margin(statement, start, end, until=end, fetch=fetch)

    def query_with_margin(self, statement, start, end, *, until, fetch, share=0.0, step=1):
        """The same; of what is missing more is fetched and kept, so that neighbours that are asked for later find it.

        At an end of the range where something is missing that is `share` of its length, and up to the next multiple of `step`. From `until`
        on points may still come: beyond it no more is fetched than what is asked for."""
        try:
            found = self.get(statement, start, end, wait_ms=self._wait_ms)
        except (OSError, CacheError):
            return fetch(start, end)
        if found is None:
            missing = (start, end)
        else:
            series, first, last = found
            if (first, last) == (start, end):
                return series
            missing = (last, end) if first == start else (start, first)
        wide = _around(missing, (start, end), int((end - start) * share), step, until)
        try:
            fetched = fetch(*wide)
        except BaseException:
            self._release(statement, start, end)
            raise
        reason = _unkeepable(fetched)
        if reason is None:
            try:
                self.set(statement, *wide, fetched)
            except (OSError, CacheError, TypeError, ValueError) as error:
                # Not kept: the next one fetches it again.
                LOG.warning("an answer is not kept: %s", error)
        else:
            LOG.warning("an answer is not kept: %s", reason)
            self._release(statement, start, end)
            # What cannot be kept can neither be cut nor joined for certain.
            return fetched if wide == (start, end) else fetch(start, end)
        if wide != missing:
            fetched = _within(fetched, *missing)
        if found is None:
            return fetched
        return join(series, fetched) if missing[0] == last else join(fetched, series)

    def _release(self, statement, start, end):
        """Lets those go on who wait for an answer that will not come: a body that is refused ends their wait."""
        try:
            self._ask(f"tset {key(statement)} {start} {end} 1", b"x\r\n")
        except (OSError, CacheError):
            pass

    def get(self, statement, start, end, wait_ms=0):
        """What is cached: series, start and end of the head or tail of the range or of all of it. None if nothing is."""
        line = f"tget {key(statement)} {start} {end} wait={wait_ms} partial"
        words = self._ask(line, b"").split()
        if words == ["MISS"]:
            return None
        if len(words) != 4 or words[0] not in ("HIT", "PART"):
            raise CacheError(" ".join(words))
        body = self._read(int(words[3]) + 2)[:-2]
        return json.loads(body)["series"], int(words[1]), int(words[2])

    def set(self, statement, start, end, series):
        """Keeps the whole answer for a range."""
        body = json.dumps({"series": series}, allow_nan=False, separators=(",", ":")).encode()
        reply = self._ask(f"tset {key(statement)} {start} {end} {len(body)}", body + b"\r\n")
        if reply != "STORED":
            raise CacheError(reply)

    def delete(self, statement, start, end):
        """Forgets the answer for a range: its data changed. Whether any of it was cached."""
        reply = self._ask(f"tdelete {key(statement)} {start} {end}", b"")
        if reply not in ("DELETED", "NOT_FOUND"):
            raise CacheError(reply)
        return reply == "DELETED"

    def close(self):
        """Ends the connection."""
        if self._socket is not None:
            self._file.close()
            self._socket.close()
            self._socket = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _ask(self, line, body):
        is_new = self._socket is None
        try:
            return self._ask_once(line, body)
        except OSError:
            # A server that was restarted has closed the connection: once more, on a new one.
            if is_new:
                raise
            return self._ask_once(line, body)

    def _ask_once(self, line, body):
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, self._timeout + self._wait_ms / 1000)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._file = self._socket.makefile("rb")
            self._socket.sendall(line.encode() + b"\r\n" + body)
            reply = self._file.readline()
            if not reply.endswith(b"\r\n"):
                raise ConnectionError("the cache closed the connection")
            return reply[:-2].decode()
        except OSError:
            self.close()
            raise

    def _read(self, count):
        data = self._file.read(count)
        if len(data) < count:
            self.close()
            raise ConnectionError("the cache closed the connection")
        return data


def key(statement):
    """Stands for a statement without its time range: the SHA-1 digest of its text."""
    return hashlib.sha1(statement.encode()).hexdigest()


def join(earlier, later):
    """The series of an earlier range and of the one behind it as one list."""
    joined = {series.get("name", ""): series for series in earlier}
    for series in later:
        name = series.get("name", "")
        joined[name] = _behind(joined[name], series) if name in joined else series
    return list(joined.values())


def _unkeepable(series):
    """Why a list of series cannot be kept as it is, if it cannot."""
    for one in series:
        other = set(one) - {"name", "columns", "values"}
        if other:
            return f"a series has {', '.join(sorted(other))} beside name, columns and values"
        for row in one["values"]:
            if type(row[0]) is not int:
                return f"a time is {row[0]!r}, not a whole number"
            for value in row[1:]:
                if not isinstance(value, (int, float, str, type(None))):
                    return f"a value is of the type {type(value).__name__}"
                if isinstance(value, float) and not math.isfinite(value):
                    return f"a value is {value}"
    return None


def _around(missing, asked, more, step, until):
    """What is to be fetched where something of what was asked for is missing."""
    first, last = missing
    if first == asked[0]:
        first = (first - more) // step * step
    if last == asked[1]:
        last = max(last, min(until, -(-(last + more) // step) * step))
    return first, last


def _within(series, start, end):
    inside = [{**one, "values": [row for row in one["values"] if start <= row[0] < end]} for one in series]
    return [one for one in inside if one["values"]]


def _behind(earlier, later):
    if earlier["columns"] == later["columns"]:
        return {**earlier, "values": earlier["values"] + later["values"]}
    columns = earlier["columns"] + [name for name in later["columns"] if name not in earlier["columns"]]
    rows = [dict(zip(part["columns"], row)) for part in (earlier, later) for row in part["values"]]
    return {"name": earlier.get("name", ""), "columns": columns, "values": [[row.get(name) for name in columns] for row in rows]}
