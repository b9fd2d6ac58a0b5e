"""The usual flows of asyncpg, psycopg, SQLAlchemy and pandas, unmodified, against a server whose table cpu has three rows. Takes the port."""

import asyncio
import datetime
import sys

import asyncpg
import pandas
import psycopg
import psycopg.rows
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

port = int(sys.argv[1])
UTC = datetime.timezone.utc
START = datetime.datetime(2016, 1, 1, tzinfo=UTC)


def at(minute):
    return START + datetime.timedelta(minutes=minute)


def raises(code, action):
    try:
        action()
    except psycopg.Error as error:
        assert error.sqlstate == code, (error.sqlstate, error)
        return str(error)
    raise AssertionError(f"no error {code}")


def with_psycopg():
    with psycopg.connect(f"host=127.0.0.1 port={port} user=tester dbname=default") as connection:
        # Rows wait for COMMIT, and ROLLBACK drops them.
        connection.execute("CREATE TABLE pg (time TIMESTAMPTZ NOT NULL, host TAG, level DOUBLE PRECISION, n BIGINT, ok BOOLEAN, note TEXT)")
        connection.commit()
        insert = "INSERT INTO pg (time, host, level, n, ok, note) VALUES (%s, %s, %s, %s, %s, %s)"
        connection.execute(insert, (at(0), "a", 1.5, 7, True, "x"))
        connection.rollback()
        count = lambda: connection.execute("SELECT count(*) FROM pg").fetchone()[0]
        assert count() == 0
        cursor = connection.cursor()
        cursor.executemany(insert, [(at(minute), "a", minute / 2, minute, minute % 2 == 0, None) for minute in range(10)])
        assert cursor.rowcount == 10, cursor.rowcount
        connection.commit()
        assert count() == 10
        # After an error nothing but the end.
        raises("42703", lambda: connection.execute("SELECT nothing FROM pg"))
        raises("25P02", lambda: connection.execute("SELECT 1"))
        connection.rollback()
        # A part of a transaction.
        with connection.transaction():
            connection.execute(insert, (at(20), "b", 1.0, 1, True, "kept"))
            try:
                with connection.transaction():
                    connection.execute(insert, (at(21), "b", 1.0, 1, True, "dropped"))
                    connection.execute("SELECT nothing FROM pg")
            except psycopg.errors.UndefinedColumn:
                pass
        assert connection.execute("SELECT note FROM pg WHERE host = 'b'").fetchall() == [("kept",)]
        # Parameters have the types of what they stand beside.
        rows = connection.execute("SELECT n FROM pg WHERE time >= %s AND host = ANY(%s) ORDER BY n LIMIT %s", ("2016-01-01 00:08:00+00", ["a", "c"], 5)).fetchall()
        assert rows == [(8,), (9,)], rows
        assert connection.execute("SELECT n FROM pg WHERE n = ANY(%s) ORDER BY 1", ([1, 3],)).fetchall() == [(1,), (1,), (3,)]
        # A cursor on the server's side.
        with connection.cursor("named") as named:
            named.itersize = 3
            named.execute("SELECT n FROM pg WHERE host = %s ORDER BY n", ("a",))
            assert [column.name for column in named.description] == ["n"]
            assert named.fetchmany(2) == [(0,), (1,)]
            assert [row[0] for row in named] == list(range(2, 10))
        connection.commit()
        # Dictionaries of rows; what was prepared; what comes back.
        named = connection.cursor(row_factory=psycopg.rows.dict_row)
        assert named.execute("SELECT host, max(n) AS n FROM pg GROUP BY host ORDER BY host").fetchall() == [{"host": "a", "n": 9}, {"host": "b", "n": 1}]
        for number in range(8):
            assert connection.execute("SELECT %s::bigint + 1", (number,), prepare=True).fetchone() == (number + 1,)
        cursor = connection.execute("INSERT INTO pg (time, host, level) VALUES (%s, 'r', 1), (%s, 'r', 2) RETURNING host, level * 2 AS twice", (at(30), at(31)))
        assert cursor.fetchall() == [("r", 2.0), ("r", 4.0)] and cursor.rowcount == 2
        connection.commit()
        # The same row again.
        again = "INSERT INTO pg (time, host, level, n) VALUES (%s, 'r', 10, 5) ON CONFLICT (time, host) "
        assert connection.execute(again + "DO NOTHING", (at(30),)).rowcount == 0
        assert connection.execute(again + "DO UPDATE SET level = pg.level + excluded.level", (at(30),)).rowcount == 1
        connection.commit()
        assert connection.execute("SELECT level, n FROM pg WHERE host = 'r' ORDER BY time").fetchall() == [(11.0, None), (2.0, None)]
        assert "ON CONFLICT (time, host)" in raises("42P10", lambda: connection.execute("INSERT INTO pg (time, host, level) VALUES (now(), 'r', 1) ON CONFLICT (host) DO NOTHING"))
        connection.rollback()
        assert "INSERT a row" in raises("0A000", lambda: connection.execute("UPDATE pg SET level = 1"))
        connection.rollback()
        assert connection.execute("DELETE FROM pg WHERE host = 'r'").rowcount == 2
        connection.commit()
        # COPY in binary form, both ways.
        with connection.cursor().copy("COPY pg (time, host, level, n) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["timestamptz", "text", "float8", "int8"])
            copy.write_row((at(40), "bin", 0.25, 3))
            copy.write_row((at(41), "bin", None, 4))
            copy.write_row((at(42), "bin", float("nan"), None))
        connection.commit()
        with connection.cursor().copy("COPY (SELECT time, level, n FROM pg WHERE host = 'bin' ORDER BY time) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["timestamptz", "float8", "int8"])
            assert list(copy.rows()) == [(at(40), 0.25, 3), (at(41), None, 4)]
        # Notices.
        told = []
        connection.add_notice_handler(lambda diagnostic: told.append(diagnostic.message_primary))
        connection.execute("CREATE INDEX ON pg (host)")
        connection.execute("SELECT create_hypertable('pg', 'time', if_not_exists => TRUE)")
        connection.execute("SELECT add_compression_policy('pg', INTERVAL '7 days')")
        assert len(told) == 3 and all("does nothing" in message for message in told), told
        connection.commit()
        connection.execute("CREATE MATERIALIZED VIEW pg_hour AS SELECT time_bucket('1 hour', time) AS hour, host, max(level) AS high FROM pg GROUP BY hour, host")
        assert "the view is not needed" in told[-1], told
        connection.execute("DROP MATERIALIZED VIEW pg_hour")
        connection.commit()
        # Times of a statement.
        connection.execute("SET statement_timeout = '30ms'")
        connection.commit()
        raises("57014", lambda: connection.execute("SELECT count(*) FROM generate_series(1, 9000000) a"))
        connection.rollback()
        connection.execute("RESET statement_timeout")
        assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)
        connection.rollback()
        # Statements of SQL that are prepared.
        connection.execute("PREPARE p (text) AS SELECT count(*) FROM pg WHERE host = $1")
        assert connection.execute("EXECUTE p ('a')").fetchone() == (10,)
        connection.execute("DEALLOCATE p")
        raises("26000", lambda: connection.execute("EXECUTE p ('a')"))
        connection.rollback()
        connection.execute("TRUNCATE pg")
        connection.commit()
        assert count() == 0
    with psycopg.connect(f"host=127.0.0.1 port={port} user=tester dbname=default", autocommit=True) as connection:
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::bigint", (number,)) for number in range(20)]
            connection.execute("INSERT INTO piped (time, host, v) VALUES (now(), 'a', 1)")
            assert [cursor.fetchone()[0] for cursor in cursors] == list(range(20))
        assert connection.execute("SELECT count(*) FROM piped").fetchone() == (1,)


async def with_asyncpg():
    pool = await asyncpg.create_pool(host="127.0.0.1", port=port, user="tester", database="default", min_size=2, max_size=4)
    async with pool.acquire() as connection:
        await connection.execute("CREATE TABLE ap (time TIMESTAMPTZ NOT NULL, host TAG, level DOUBLE PRECISION, n BIGINT, ok BOOLEAN, note TEXT)")
        insert = "INSERT INTO ap (time, host, level, n, ok, note) VALUES ($1, $2, $3, $4, $5, $6)"
        assert await connection.execute(insert, at(0), "a", 1.5, 7, True, "x") == "INSERT 0 1"
        await connection.executemany(insert, [(at(minute), "b", minute / 2, minute, None, None) for minute in range(5)])
        prepared = await connection.prepare("SELECT n, level FROM ap WHERE time >= $1 AND level > $2 AND host = ANY($3) AND n <> ALL($4) ORDER BY n LIMIT $5")
        assert [kind.name for kind in prepared.get_parameters()] == ["timestamptz", "float8", "text[]", "int8[]", "int8"], prepared.get_parameters()
        assert [tuple(row) for row in await prepared.fetch(at(0), 0.0, ["b"], [2], 10)] == [(1, 0.5), (3, 1.5), (4, 2.0)]
        try:
            async with connection.transaction():
                await connection.execute(insert, at(10), "c", 1.0, 1, True, "x")
                raise RuntimeError("no")
        except RuntimeError:
            pass
        assert await connection.fetchval("SELECT count(*) FROM ap") == 6
        async with connection.transaction():
            await connection.execute(insert, at(10), "c", 1.0, 1, True, "x")
            assert [row["n"] async for row in connection.cursor("SELECT n FROM ap WHERE host = $1 ORDER BY n", "b", prefetch=2)] == list(range(5))
        assert await connection.fetchval("SELECT count(*) FROM ap") == 7
        assert await connection.copy_records_to_table("ap", records=[(at(20), "d", 2.5), (at(21), "d", 3.5)], columns=["time", "host", "level"]) == "COPY 2"
        assert await connection.fetchval("SELECT sum(level) FROM ap WHERE host = 'd'") == 6.0
        assert await connection.fetchval("SELECT time FROM ap WHERE host = 'a'") == at(0)
        assert await connection.fetchval("SELECT $1::timestamptz + $2::interval", at(0), datetime.timedelta(minutes=1)) == at(1)
        assert await connection.execute("DELETE FROM ap WHERE host = 'd'") == "DELETE 2"
        try:
            await connection.execute("SELECT 1", timeout=1)
            await connection.fetch("SELECT nothing FROM ap")
            raise AssertionError("an unknown column was found")
        except asyncpg.UndefinedColumnError:
            pass
    # Sessions go back to the pool with what that sends.
    await asyncio.gather(*(pool.fetchval("SELECT $1::int8", number) for number in range(20)))
    await pool.close()


def with_sqlalchemy(url):
    engine = sqlalchemy.create_engine(url)
    metadata = sqlalchemy.MetaData()
    metadata.reflect(engine, only=["cpu"])
    cpu = metadata.tables["cpu"]
    assert [column.name for column in cpu.columns] == ["time", "hostname", "usage"], cpu.columns
    with engine.connect() as connection:
        result = connection.execution_options(stream_results=True, yield_per=2).execute(sqlalchemy.select(cpu.c.hostname).order_by(cpu.c.hostname))
        assert [row.hostname for row in result] == ["a", "b", "c"]
        found = connection.execute(sqlalchemy.select(sqlalchemy.func.count()).where(cpu.c.hostname.in_(["a", "b"]), cpu.c.usage >= 1.5)).scalar()
        assert found == 2, found
    name = "sa_" + url.split("+")[1].split(":")[0]
    table = sqlalchemy.Table(
        name,
        sqlalchemy.MetaData(),
        sqlalchemy.Column("time", sqlalchemy.DateTime(timezone=True)),
        sqlalchemy.Column("note", sqlalchemy.Text),
        sqlalchemy.Column("level", sqlalchemy.Float),
        sqlalchemy.Column("n", sqlalchemy.BigInteger),
    )
    table.create(engine)
    assert sqlalchemy.inspect(engine).has_table(name)
    with engine.begin() as connection:
        connection.execute(table.insert(), [{"time": at(minute), "note": f"n{minute}", "level": minute / 2, "n": minute} for minute in range(20)])
    with engine.connect() as connection:
        transaction = connection.begin()
        connection.execute(table.insert(), {"time": at(50), "note": "x", "level": 1.0, "n": 1})
        transaction.rollback()
        rows = connection.execute(sqlalchemy.select(table).where(table.c.n.between(3, 5)).order_by(table.c.time.desc()).limit(2)).all()
        assert rows == [(at(5), "n5", 2.5, 5), (at(4), "n4", 2.0, 4)], rows
        assert connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(table)).scalar() == 20
    table.drop(engine)
    engine.dispose()


async def with_asyncpg_engine():
    engine = create_async_engine(f"postgresql+asyncpg://tester@127.0.0.1:{port}/default")
    async with engine.connect() as connection:
        names = await connection.run_sync(lambda connection: sqlalchemy.inspect(connection).get_table_names())
        assert "cpu" in names, names
        columns = await connection.run_sync(lambda connection: sqlalchemy.inspect(connection).get_columns("cpu"))
        assert [column["name"] for column in columns] == ["time", "hostname", "usage"]
        stream = await connection.stream(sqlalchemy.text("SELECT hostname FROM cpu WHERE usage > :least ORDER BY 1"), {"least": 2.0})
        assert [row.hostname async for row in stream] == ["b", "c"]
    async with engine.begin() as connection:
        await connection.execute(sqlalchemy.text("INSERT INTO ap (time, host, level) VALUES (:time, :host, :level)"), {"time": at(60), "host": "z", "level": 1.0})
    await engine.dispose()


def with_pandas(url):
    engine = sqlalchemy.create_engine(url)
    name = "pd_" + url.split("+")[1].split(":")[0]
    frame = pandas.DataFrame(
        {"time": pandas.date_range("2016-01-01", periods=50, freq="min", tz="UTC"), "host": ["a", "b"] * 25, "level": [index / 4 for index in range(50)], "n": range(50)}
    )
    frame.loc[3, "level"] = float("nan")
    frame.to_sql(name, engine, index=False)
    read = pandas.read_sql(f"SELECT time, host, level, n FROM {name} ORDER BY n", engine)
    assert len(read) == 50 and read["n"].tolist() == list(range(50)) and pandas.isna(read.loc[3, "level"]), read
    assert read.loc[7, "host"] == "b" and read.loc[7, "time"] == frame.loc[7, "time"], read.loc[7]
    frame.to_sql(name, engine, index=False, if_exists="append", method="multi", chunksize=20)
    assert len(pandas.read_sql(name, engine)) == 50
    chunks = pandas.read_sql(sqlalchemy.text(f"SELECT * FROM {name} WHERE n < :most"), engine, params={"most": 10}, chunksize=4)
    assert [len(chunk) for chunk in chunks] == [4, 4, 2]
    frame.set_index("time").to_sql(name + "_indexed", engine)
    assert len(pandas.read_sql_table(name + "_indexed", engine, index_col="time")) == 50
    engine.dispose()


with_psycopg()
asyncio.run(with_asyncpg())
for driver in ("psycopg", "psycopg2"):
    with_sqlalchemy(f"postgresql+{driver}://tester@127.0.0.1:{port}/default")
    with_pandas(f"postgresql+{driver}://tester@127.0.0.1:{port}/default")
asyncio.run(with_asyncpg_engine())
print("well")
