"""DuckDB as a peer: a statement a line in, its answer out. Each row is a line of cells between unit separators, a cell a letter for its
kind and its text; an answer ends with a line of its own: `.` or `!` and the error."""

import datetime
import decimal
import sys

import duckdb

EPOCH = datetime.datetime(1970, 1, 1)
MICROSECOND = datetime.timedelta(microseconds=1)


def cell(value):
    if value is None:
        return "0"
    if isinstance(value, bool):
        return "b" + ("t" if value else "f")
    if isinstance(value, (int, float, decimal.Decimal)):
        return "n" + repr(float(value))
    if isinstance(value, datetime.datetime):
        return "t" + str((value.replace(tzinfo=None) - EPOCH) // MICROSECOND)
    if isinstance(value, datetime.date):
        return "t" + str((datetime.datetime.combine(value, datetime.time()) - EPOCH) // MICROSECOND)
    return "s" + str(value).replace("\n", " ")


def main():
    connection = duckdb.connect(":memory:")
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET default_null_order = 'nulls_last_on_asc_first_on_desc'")
    for statement in sys.stdin:
        try:
            for row in connection.execute(statement).fetchall():
                print("\x1f".join(cell(value) for value in row))
            print(".", flush=True)
        except duckdb.Error as error:
            print("!" + str(error).replace("\n", " "), flush=True)


main()
