"""Against a running server: `python roundtrip.py CONTROL_PORT INGEST_PORT [CA_FILE TOKEN]`. Run by the tests of the program."""

import sys

import numpy

import thalweg

control, ingest = (("127.0.0.1", int(port)) for port in sys.argv[1:3])
ca_file, token = sys.argv[3:5] if len(sys.argv) > 3 else (None, "")
client = thalweg.Client(control, ingest, ca_file=ca_file, token=token)
members = {"usage": "f64", "cores": "u64", "delta": "i64", "up": "bool", "state": "string"}
cpu = client.register_groups("cpu", members, [{"host": f"h{number}"} for number in range(100)])
again = client.register_groups("cpu", members, [{"host": "h7"}])
assert again.tokens[0] == cpu.tokens[7] and len(set(cpu.tokens)) == 100
series = client.register_series([("level", {"station": "north"})])
minute = 60_000_000_000
for step in range(1, 6):
    usage = numpy.ma.masked_array(numpy.arange(100) + 0.5, mask=[number == 3 for number in range(100)])
    states = [None if number == 4 else f"state {number}" for number in range(100)]
    columns = [usage, numpy.full(100, 2**63), -numpy.arange(100), numpy.arange(100) % 2 == 0, states]
    rows = thalweg.Block(cpu, cpu.tokens, step * minute, columns)
    lone = thalweg.Block(series, series.tokens, [step * minute], [[float(step)]])
    client.send([rows, lone])
assert client.flush() == []
client.send([thalweg.Block(series, series.tokens + 1, [minute], [[1.0]])])
(exception,) = client.flush()
assert exception.stale_tokens.tolist() == [int(series.tokens[0]) + 1] and exception.sequence == 6
try:
    client.register_series([("", {})])
    raise SystemExit("a metric without a name was taken")
except thalweg.ThalwegError as error:
    assert "name" in str(error)
for kind, wrong in [
    ("u64", [-1]),
    ("i64", [1.9]),
    ("i64", [2**63]),
    ("i64", [float("nan")]),
    ("bool", [None]),
    ("bool", [2]),
    ("f64", [None]),
    ("f64", ["1"]),
    ("string", [1]),
]:
    typed = client.register_groups(f"typed_{kind}", {"v": kind}, [{}])
    try:
        client.send([thalweg.Block(typed, typed.tokens, [minute], [wrong])])
        raise SystemExit(f"{wrong} was taken as {kind}")
    except thalweg.ThalwegError as error:
        assert kind in str(error) or kind.rstrip("s") in str(error), error
exact = client.register_groups("exact", {"u": "u64", "i": "i64"}, [{}])
client.send([thalweg.Block(exact, exact.tokens, [minute], [[2**64 - 1], numpy.array([3.0])])])
assert client.flush() == []
client.close()
print("well")
