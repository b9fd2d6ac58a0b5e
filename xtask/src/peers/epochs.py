"""Epochs of counters into one store, and one name out of it: `cargo xtask epoch-peers` runs this for each peer.

Prints JSON: CPU seconds of the store for writing, bytes on disk, and the median milliseconds of reading one name over all epochs."""

import argparse
import http.client
import json
import os
import resource
import socket
import sqlite3
import statistics
import struct
import subprocess
import time

import numpy

INTERVAL_S = 300
START_S = 1_767_225_600
READS = 21
# Commands of Redis that are sent before their replies are read.
PIPELINE = 5_000


def counters(series, epochs):
    """Skewed counters: a few names have most of what is counted."""
    random = numpy.random.default_rng(7)
    rates = numpy.minimum(random.pareto(1.1, series), 1e5)
    for _ in range(epochs):
        yield random.poisson(rates).astype(numpy.int64)


def cpu_seconds(pid):
    """User and system time of a process."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_bytes(path):
    """Bytes of a file, or of all files in a folder."""
    if os.path.isfile(path):
        return os.stat(path).st_blocks * 512
    walked = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.stat(name).st_blocks * 512 for name in walked)


class Thalweg:
    """A regular database, by its binary columns over HTTP."""

    def __init__(self, options):
        self.connection = http.client.HTTPConnection(options.url.removeprefix("http://"))
        self.pid, self.folder = options.pid, options.folder
        # Beside these lies the log of other databases, whose room is there from the beginning.
        self.stored = [os.path.join(self.folder, name) for name in ("epochs", "index")]
        self.ask("/sql", b"CREATE DATABASE peers WITH (interval = '5m', value = int)")
        names = [f"name{number}".encode() for number in range(options.series)]
        ends, end = [], 0
        for name in names:
            end += len(name)
            ends.append(end)
        head = b"THWGEPB1" + struct.pack("<II", options.series, 0)
        self.head = head + numpy.array(ends, dtype="<u4").tobytes() + b"".join(names)

    def ask(self, path, body=None):
        method = "GET" if body is None else "POST"
        self.connection.request(method, path, body, {"Content-Type": "application/octet-stream"})
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return text

    def clock(self):
        return cpu_seconds(self.pid)

    def write(self, epoch, values):
        self.ask(f"/api/v1/epoch?db=peers&time={START_S + epoch * INTERVAL_S}", self.head + values.astype("<i8").tobytes())

    def finish(self):
        """What was acknowledged is on disk."""

    def read(self, number):
        values = json.loads(self.ask(f"/api/v1/epoch/values?db=peers&name=name{number}"))
        return values["data"]["values"] if "data" in values else values["values"]


class Sqlite:
    """One table by name and time; a transaction for each epoch."""

    def __init__(self, options):
        self.folder = options.folder
        self.connection = sqlite3.connect(os.path.join(self.folder, "v.sqlite"))
        self.connection.execute("CREATE TABLE v (name INTEGER, time INTEGER, value INTEGER, PRIMARY KEY (name, time)) WITHOUT ROWID")

    def clock(self):
        return time.process_time()

    def write(self, epoch, values):
        at_s = START_S + epoch * INTERVAL_S
        rows = [(number, at_s, value) for number, value in enumerate(values.tolist())]
        with self.connection:
            self.connection.executemany("INSERT INTO v VALUES (?, ?, ?)", rows)

    def finish(self):
        self.connection.commit()

    def read(self, number):
        rows = self.connection.execute("SELECT value FROM v WHERE name = ? ORDER BY time", (number,))
        return [value for (value,) in rows]


class Duckdb:
    """One table, in order of time; a transaction for each epoch, from columns in memory."""

    def __init__(self, options):
        import duckdb

        self.folder, self.series = options.folder, options.series
        self.connection = duckdb.connect(os.path.join(self.folder, "v.duckdb"))
        self.connection.execute("CREATE TABLE v (name INTEGER, time BIGINT, value BIGINT)")

    def clock(self):
        return time.process_time()

    def write(self, epoch, values):
        import pyarrow

        names = numpy.arange(self.series, dtype=numpy.int32)
        rows = pyarrow.table({"name": names, "time": numpy.full(self.series, START_S + epoch * INTERVAL_S), "value": values})
        self.connection.register("rows", rows)
        self.connection.execute("INSERT INTO v SELECT * FROM rows")

    def finish(self):
        self.connection.execute("CHECKPOINT")

    def read(self, number):
        rows = self.connection.execute("SELECT value FROM v WHERE name = ? ORDER BY time", [number])
        return [value for (value,) in rows.fetchall()]


class Redis:
    """A list for each name, as the paper on ntop's database has it; in memory, saved at the end."""

    def __init__(self, options):
        self.pid, self.folder = options.pid, options.folder
        self.socket = socket.create_connection(("127.0.0.1", options.port))
        self.replies = self.socket.makefile("rb")

    def clock(self):
        return cpu_seconds(self.pid)

    def send(self, *words):
        parts = [str(word).encode() for word in words]
        return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)

    def write(self, epoch, values):
        values = values.tolist()
        for first in range(0, len(values), PIPELINE):
            some = values[first : first + PIPELINE]
            self.socket.sendall(b"".join(self.send("RPUSH", first + place, value) for place, value in enumerate(some)))
            for _ in some:
                assert self.replies.readline().startswith(b":")

    def finish(self):
        self.socket.sendall(self.send("SAVE"))
        assert self.replies.readline() == b"+OK\r\n"

    def read(self, number):
        self.socket.sendall(self.send("LRANGE", number, 0, -1))
        count = int(self.replies.readline()[1:])
        return [int((self.replies.readline(), self.replies.readline())[1]) for _ in range(count)]


class Rrdtool:
    """A file for each name, by one process that reads commands."""

    def __init__(self, options):
        self.folder, self.epochs = options.folder, options.epochs
        self.started = None
        self.open()
        for number in range(options.series):
            self.tell(f"create {number}.rrd --start {START_S - INTERVAL_S} --step {INTERVAL_S} "
                      f"DS:v:GAUGE:{2 * INTERVAL_S}:U:U RRA:LAST:0.5:1:{options.epochs}")
        self.close()
        self.open()

    def open(self):
        self.process = subprocess.Popen(["rrdtool", "-"], cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        lines = []
        while not (line := self.process.stdout.readline()).startswith("OK"):
            if line.startswith("ERROR") or not line:
                raise RuntimeError(f"rrdtool: {command}: {line}")
            lines.append(line)
        return lines

    def clock(self):
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = cpu_seconds(self.process.pid) if self.process.poll() is None else 0
        return usage.ru_utime + usage.ru_stime + running

    def write(self, epoch, values):
        at_s = START_S + epoch * INTERVAL_S
        for number, value in enumerate(values.tolist()):
            self.tell(f"update {number}.rrd {at_s}:{value}")

    def finish(self):
        """Each update is in its file."""

    def read(self, number):
        first_s, last_s = START_S - INTERVAL_S, START_S + (self.epochs - 1) * INTERVAL_S
        lines = self.tell(f"fetch {number}.rrd LAST --start {first_s} --end {last_s}")
        values = [line.split(": ") for line in lines if ": " in line]
        return [int(float(value)) for at_s, value in values if START_S <= int(at_s) <= last_s]


PEERS = {"thalweg": Thalweg, "sqlite": Sqlite, "duckdb": Duckdb, "redis": Redis, "rrdtool": Rrdtool}


def main():
    """Writes all epochs, reads some names, and compares them with what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--series", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--url", default="")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pid", type=int, default=0)
    options = parser.parse_args()
    peer = PEERS[options.peer](options)
    picked = [options.series * place // READS for place in range(READS)]
    expected, cpu_s = [], 0.0
    for epoch, values in enumerate(counters(options.series, options.epochs)):
        expected.append(values[picked])
        before = peer.clock()
        peer.write(epoch, values)
        cpu_s += peer.clock() - before
    before = peer.clock()
    peer.finish()
    cpu_s += peer.clock() - before
    read_ms = []
    for place, number in enumerate(picked):
        begun = time.perf_counter()
        found = peer.read(number)
        read_ms.append((time.perf_counter() - begun) * 1e3)
        wanted = [int(values[place]) for values in expected]
        assert found == wanted, f"{options.peer} {number}: {found[:5]} of {len(found)} and not {wanted[:5]} of {len(wanted)}"
    stored = getattr(peer, "stored", [options.folder])
    print(json.dumps({"cpu_s": cpu_s, "bytes": sum(map(disk_bytes, stored)), "read_ms": statistics.median(read_ms)}))


main()
