"""Clients of Postgres in Python against a server whose table cpu has three rows. Takes the port."""

import datetime
import sys

import psycopg
import sqlalchemy

port = int(sys.argv[1])

with psycopg.connect(f"host=127.0.0.1 port={port} user=tester dbname=default", autocommit=True) as connection:
    rows = connection.execute("SELECT hostname, usage, time FROM cpu ORDER BY hostname").fetchall()
    assert rows[0] == ("a", 1.5, datetime.datetime(2016, 1, 1)), rows
    # Parameters on the server's side, as texts and in binary form.
    for binary in (False, True):
        cursor = connection.cursor(binary=binary)
        cursor.execute("SELECT count(*), max(usage) FROM cpu WHERE hostname <> %s AND usage > %s", ("a", 1.0))
        assert cursor.fetchall() == [(2, 3.5)], cursor.fetchall()
    try:
        connection.execute("SELECT nothing FROM cpu")
        raise AssertionError("an unknown column was found")
    except psycopg.errors.UndefinedColumn:
        pass
    with connection.transaction():
        connection.execute("INSERT INTO notes (time, author, level) VALUES (now(), %s, %s)", ("x", 2.5))
    assert connection.execute("SELECT author, level FROM notes").fetchone() == ("x", 2.5)

engine = sqlalchemy.create_engine(f"postgresql+psycopg://tester@127.0.0.1:{port}/default")
with engine.connect() as connection:
    assert connection.execute(sqlalchemy.text("SELECT sum(usage) FROM cpu")).scalar() == 7.5
print("well")
