"""The official ADBC driver of Flight SQL against the server whose URI is given."""

import datetime
import sys

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow


def check(found, expected):
    assert found == expected, f"found {found}, expected {expected}"


def reads(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT hostname, usage, busy FROM cpu ORDER BY hostname")
        check(cursor.fetchall(), [("a", 1.5, 3), ("b", 2.5, 4), ("c", 3.5, None)])
        cursor.execute("SELECT time, usage FROM cpu WHERE hostname = $1", parameters=("b",))
        table = cursor.fetch_arrow_table()
        check(table.column("usage").to_pylist(), [2.5])
        check(table.column("time").to_pylist()[0].replace(tzinfo=None), datetime.datetime(2016, 1, 1))
        try:
            cursor.execute("SELECT nothing FROM cpu")
        except flight_sql.Error as error:
            assert "42703" in str(error), error
        else:
            raise AssertionError("a column that does not exist is an error")


def writes(connection):
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE disk (time TIMESTAMP, free DOUBLE PRECISION)")
        cursor.executemany(
            "INSERT INTO disk (time, path, free) VALUES ('2016-01-01', $1, $2)", [("/", 1.5), ("/tmp", 2.5)]
        )
        cursor.execute("SELECT path, free FROM disk ORDER BY path")
        check(cursor.fetchall(), [("/", 1.5), ("/tmp", 2.5)])


def ingests(connection):
    times = pyarrow.array([datetime.datetime(2016, 1, day) for day in (1, 2, 3)], pyarrow.timestamp("us"))
    table = pyarrow.table({"time": times, "sensor": ["a", "b", "a"], "degrees": [20.5, 21.5, 22.5]})
    with connection.cursor() as cursor:
        check(cursor.adbc_ingest("climate", table, mode="create"), 3)
        check(cursor.adbc_ingest("climate", table, mode="append"), 3)
        try:
            cursor.adbc_ingest("climate", table, mode="create")
        except flight_sql.Error as error:
            assert "already exists" in str(error), error
        else:
            raise AssertionError("a table is not made twice")
        cursor.execute("SELECT sensor, max(degrees) FROM climate GROUP BY sensor ORDER BY sensor")
        check(cursor.fetchall(), [("a", 22.5), ("b", 21.5)])


def lists(connection):
    objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
    tables = {
        (catalog["catalog_name"], table["table_name"]): [column["column_name"] for column in table["table_columns"]]
        for catalog in objects
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"]
    }
    check(tables[("default", "cpu")], ["time", "hostname", "usage", "busy"])
    check(tables[("other", "mem")], ["time", "used"])
    check(connection.adbc_get_info()["vendor_name"], "Thalweg")
    check(connection.adbc_get_table_types(), ["TABLE"])
    check(connection.adbc_get_table_schema("cpu").names, ["time", "hostname", "usage", "busy"])


def main(uri):
    with flight_sql.connect(uri, autocommit=True) as connection:
        for test in (reads, writes, ingests, lists):
            test(connection)
    options = {"adbc.flight.sql.rpc.call_header.database": "other"}
    with flight_sql.connect(uri, db_kwargs=options, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT used FROM mem")
        check(cursor.fetchall(), [(1.0,)])
    with flight_sql.connect(uri, db_kwargs={"username": "x", "password": "y"}, autocommit=True) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            check(cursor.fetchall(), [(1,)])
    print("all well")


main(sys.argv[1])
