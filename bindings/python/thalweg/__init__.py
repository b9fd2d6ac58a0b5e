"""Thalweg, a time-series database: in this process, or a client of its server.

In this process (thalweg.engine), where the package has its engine:

    import thalweg

    with thalweg.open("weather") as db:
        db.write_lines("weather,station=hill celsius=4.5")
        print(db.sql("SELECT * FROM weather").to_pandas())

A client that writes by the binary protocol, in Python alone:

    import numpy, thalweg

    client = thalweg.Client()
    cpu = client.register_groups("cpu", {"usage": "f64", "cores": "u64"}, [{"host": "a"}, {"host": "b"}])
    times = numpy.array([1_700_000_000_000_000_000])
    client.send([thalweg.Block(cpu, cpu.tokens, times, [[0.5, 0.25], [4, 8]])])
    client.flush()

What was sent is kept until the server says that it is on disk. Where the connection breaks it is made again, and what the server
did not apply is sent again: once applied is applied once, also across restarts of the server.
"""

from .client import Block, Client, Exception_, Registered, RegisterAgain
from .errors import EngineError, ThalwegError


def open(path, **options):
    """Opens a data folder in this process, or makes one: a thalweg.engine.Database."""
    try:
        from .engine import Database
    except ImportError as error:
        message = "this installation of thalweg has no engine, only clients: install a wheel of it (pip install thalweg), or build one by maturin"
        raise ImportError(message) from error
    return Database(path, **options)


__all__ = ["Block", "Client", "EngineError", "Exception_", "Registered", "RegisterAgain", "ThalwegError", "open"]
