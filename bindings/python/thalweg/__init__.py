"""Writes to Thalweg by its binary protocol.

    import numpy, thalweg

    client = thalweg.Client()
    cpu = client.register_groups("cpu", {"usage": "f64", "cores": "u64"}, [{"host": "a"}, {"host": "b"}])
    times = numpy.array([1_700_000_000_000_000_000])
    client.send([thalweg.Block(cpu, cpu.tokens, times, [[0.5, 0.25], [4, 8]])])
    client.flush()

What was sent is kept until the server says that it is on disk. Where the connection breaks it is made again, and what the server
did not apply is sent again: once applied is applied once, also across restarts of the server.
"""

from .client import Block, Client, Exception_, Registered, RegisterAgain, ThalwegError

__all__ = ["Block", "Client", "Exception_", "Registered", "RegisterAgain", "ThalwegError"]
