"""`thalweg cache` in front of a server that speaks Postgres's protocol. Takes the cache's port and how to connect to the server."""

import datetime
import sys

import psycopg

import thalweg.cache

port, server = int(sys.argv[1]), sys.argv[2]
epoch = datetime.datetime(2016, 1, 1)
statement = f"{server}: SELECT time, host, level FROM load"


def moment(seconds):
    return (epoch + datetime.timedelta(seconds=seconds)).isoformat(sep=" ")


def insert(connection, seconds, host, level):
    row = f"INSERT INTO load (time, host, level) VALUES ('{moment(seconds)}', '{host}', {level})"
    connection.execute(row)


with psycopg.connect(server, autocommit=True) as connection, thalweg.cache.Cache(port=port) as cache:
    if "dbname=default" not in server:
        connection.execute("CREATE TABLE load (time timestamp NOT NULL, host text, level double precision)")
    for seconds in range(0, 600, 10):
        insert(connection, seconds, f"h{seconds // 10 % 3}", seconds / 7)

    fetched = []

    def fetch(start, end):
        fetched.append((start, end))
        text = f"SELECT time, host, level FROM load WHERE time >= '{moment(start)}' AND time < '{moment(end)}' ORDER BY time, host"
        series = {}
        for time, host, level in connection.execute(text).fetchall():
            one = series.setdefault(host, {"name": host, "columns": ["time", "level"], "values": []})
            one["values"].append([round((time.replace(tzinfo=None) - epoch).total_seconds()), level])
        return list(series.values())

    def check(start, end, expected):
        """An answer by the cache is the database's own, to the bit; what was fetched for it."""
        fetched.clear()
        found = cache.query(statement, start, end, fetch)
        asked = list(fetched)
        points = {(one["name"], row[0]): row[1] for one in found for row in one["values"]}
        own = {(one["name"], row[0]): row[1] for one in fetch(start, end) for row in one["values"]}
        assert points == own and points, (start, end, points, own)
        assert asked == expected, (start, end, asked)

    check(100, 300, [(100, 300)])
    check(100, 300, [])
    check(120, 250, [])
    check(200, 400, [(300, 400)])
    check(0, 400, [(0, 100)])
    # A dashboard that slides.
    for start in range(0, 200, 20):
        check(start, start + 400, [(start + 380, start + 400)] if start else [])
    # What came late is there once the range was forgotten.
    insert(connection, 205, "h9", 0.1)
    assert cache.delete(statement, 200, 210)
    check(190, 230, [(190, 210)])
    check(205, 206, [])
