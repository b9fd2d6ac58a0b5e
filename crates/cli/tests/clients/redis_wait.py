"""redis-py waits for samples: TS.READ with BLOCK. Arguments: port of Redis's protocol, port of HTTP, id of the server's process."""

import os
import sys
import threading
import time
import urllib.request

import redis

PORT, HTTP, SERVER = (int(argument) for argument in sys.argv[1:])
CLIENTS = 150
PATIENCE_S = 60


def client():
    return redis.Redis(port=PORT, decode_responses=True, socket_timeout=PATIENCE_S)


def waiting(work):
    """Begins work that waits; what it returns comes by calling the result."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()

    def result():
        thread.join(PATIENCE_S)
        assert found, "the client waits still"
        return found[0]

    return result


def count(folder):
    return len(os.listdir(f"/proc/{SERVER}/{folder}"))


writer = client()
writer.ts().create("a")
writer.ts().add("a", 100, 1)

# The reply comes with the samples that are waited for, not with the first of them.
reader = client()
result = waiting(lambda: reader.ts().read("a", 101, block_milliseconds=0, block_min_count=2))
writer.ts().add("a", 200, 2)
writer.ts().add("a", 300, 3)
assert result() == [[200, 2.0], [300, 3.0]]
# What there is when the time is up.
assert reader.ts().read("a", 300, block_milliseconds=50, block_min_count=2) == [[300, 3.0]]
assert reader.ts().read("a", "$", block_milliseconds=50, block_min_count=1) == []
# A transaction waits for nothing.
with reader.pipeline(transaction=True) as pipeline:
    pipeline.execute_command("TS.READ", "a", "$", "BLOCK", 0, 1)
    pipeline.execute_command("PING")
    assert pipeline.execute() == [[], True]

# Rows that come by another protocol.
result = waiting(lambda: reader.ts().read("other", "-", block_milliseconds=0, block_min_count=1))
request = urllib.request.Request(f"http://127.0.0.1:{HTTP}/write?db=redis&precision=ms", b"ts,key=other value=7 500")
urllib.request.urlopen(request, timeout=PATIENCE_S).read()
assert result() == [[500, 7.0]]

# Many clients wait at once; the server has no thread for each.
before = count("task")
clients = [client() for _ in range(CLIENTS)]
connections = [each.connection_pool.get_connection() for each in clients]
for connection in connections:
    connection.send_command("TS.READ", "a", "$", "BLOCK", 0, 1)
# What comes after waits, too, and is answered in order.
connections[0].send_command("ECHO", "after")
for _ in range(200):
    assert writer.ping()
# Threads that ran the commands end when they have had nothing to do for some seconds; one that waited with its client would stay.
deadline = time.monotonic() + PATIENCE_S
while count("task") - before >= CLIENTS / 3:
    assert time.monotonic() < deadline, (before, count("task"))
    assert not connections[0].can_read(0.2), "nothing was written"
# Some may not be read before this one: they wait for the next.
newest = 1_000
deadline = time.monotonic() + PATIENCE_S
for number, connection in enumerate(connections):
    while not connection.can_read(0.05):
        assert time.monotonic() < deadline, f"client {number} waits still"
        newest += 1
        writer.ts().add("a", newest, 4)
    assert connection.read_response()[0][1] in ("4", 4.0), number
assert connections[0].read_response() == "after"

# Clients that leave are forgotten.
open_files = count("fd")
for connection in connections:
    connection.send_command("TS.READ", "a", "$", "BLOCK", 0, 1)
for connection in connections:
    connection.disconnect()
while count("fd") > open_files - CLIENTS + 20:
    assert time.monotonic() < deadline, "connections of clients that left stay open"
    assert writer.ping()

# The last one waits when the server ends.
last = client().connection_pool.get_connection()
last.send_command("TS.READ", "a", "$", "BLOCK", 0, 1)
assert writer.ping()
print("waiting", flush=True)
try:
    last.read_response()
    raise AssertionError("the server was to end")
except (redis.ConnectionError, redis.TimeoutError) as error:
    assert isinstance(error, redis.ConnectionError), error
