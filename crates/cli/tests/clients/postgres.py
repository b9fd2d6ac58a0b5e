"""Clients of Postgres in Python against a server whose table cpu has three rows. Takes the port."""

import datetime
import pathlib
import sys
import tempfile

import duckdb
import psycopg
import sqlalchemy

port = int(sys.argv[1])

with psycopg.connect(f"host=127.0.0.1 port={port} user=tester dbname=default", autocommit=True) as connection:
    rows = connection.execute("SELECT hostname, usage, time FROM cpu ORDER BY hostname").fetchall()
    assert rows[0] == ("a", 1.5, datetime.datetime(2016, 1, 1, tzinfo=datetime.timezone.utc)), rows
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

    # Rows in and out in one go.
    with connection.cursor().copy("COPY copied (time, host, level, note) FROM STDIN") as copy:
        copy.write_row((datetime.datetime(2016, 1, 1), "a b", 1.5, "x\ty"))
        copy.write_row((datetime.datetime(2016, 1, 2), "d", 2, None))
    rows = connection.execute("SELECT host, level FROM copied ORDER BY time, host").fetchall()
    assert rows == [("a b", 1.5), ("d", 2.0)], rows
    with connection.cursor().copy("COPY (SELECT hostname, usage FROM cpu ORDER BY hostname) TO STDOUT") as copy:
        copied = list(copy.rows())
    assert copied == [("a", "1.5"), ("b", "2.5"), ("c", "3.5")], copied

    # A Parquet file out, through another program, and in again.
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = pathlib.Path(folder, "ours.parquet"), pathlib.Path(folder, "theirs.parquet")
        with connection.cursor().copy("COPY cpu TO STDOUT (FORMAT parquet)") as copy:
            ours.write_bytes(b"".join(copy))
        rows = duckdb.sql(f"SELECT hostname, usage, epoch_ns(time) FROM '{ours}' ORDER BY hostname").fetchall()
        assert rows[0] == ("a", 1.5, 1451606400000000000) and len(rows) == 3, rows
        duckdb.sql(f"COPY (SELECT time, hostname AS host, usage * 2 AS twice FROM '{ours}') TO '{theirs}'")
        with connection.cursor().copy("COPY doubled FROM STDIN (FORMAT parquet)") as copy:
            copy.write(theirs.read_bytes())
    rows = connection.execute("SELECT host, twice, time FROM doubled ORDER BY host").fetchall()
    assert rows[2] == ("c", 7.0, datetime.datetime(2016, 1, 1, tzinfo=datetime.timezone.utc)) and len(rows) == 3, rows

engine = sqlalchemy.create_engine(f"postgresql+psycopg://tester@127.0.0.1:{port}/default")
with engine.connect() as connection:
    assert connection.execute(sqlalchemy.text("SELECT sum(usage) FROM cpu")).scalar() == 7.5
inspector = sqlalchemy.inspect(engine)
assert "public" in inspector.get_schema_names()
assert "cpu" in inspector.get_table_names() and inspector.has_table("cpu")
columns = [(column["name"], str(column["type"]), column["nullable"]) for column in inspector.get_columns("cpu")]
assert columns == [("time", "TIMESTAMP", False), ("hostname", "TEXT", True), ("usage", "DOUBLE PRECISION", True)], columns
assert inspector.get_indexes("cpu") == [] and inspector.get_foreign_keys("cpu") == []
table = sqlalchemy.Table("cpu", sqlalchemy.MetaData(), autoload_with=engine)
with engine.connect() as connection:
    query = sqlalchemy.select(table.c.hostname).where(table.c.usage > 2).order_by(table.c.hostname)
    assert connection.execute(query).scalars().all() == ["b", "c"]
print("well")
