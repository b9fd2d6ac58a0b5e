"""What programs do with InfluxDB 2's own Python client, against the server on the port that is given."""

import sys
from datetime import datetime, timedelta, timezone

from influxdb_client import InfluxDBClient, Point
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

client = InfluxDBClient(url=f"http://127.0.0.1:{sys.argv[1]}", token="unused", org="home")
buckets = client.buckets_api()
bucket = buckets.create_bucket(bucket_name="climate", org_id=client.organizations_api().find_organizations()[0].id)
assert buckets.find_bucket_by_name("climate").id == bucket.id

start = datetime(2021, 1, 1, tzinfo=timezone.utc)
points = [
    Point("air").tag("room", room).field("temperature", 20.0 + minute).field("people", minute).time(start + timedelta(minutes=minute))
    for room in ("kitchen", "hall")
    for minute in range(10)
]
client.write_api(write_options=SYNCHRONOUS).write(bucket="climate", record=points)

query = client.query_api()
source = 'from(bucket: "climate") |> range(start: 2021-01-01T00:00:00Z, stop: 2021-01-01T01:00:00Z)'
tables = query.query(f'{source} |> filter(fn: (r) => r._measurement == "air" and r._field == "temperature" and r.room == "hall")')
assert len(tables) == 1
records = tables[0].records
assert [record.get_value() for record in records] == [20.0 + minute for minute in range(10)]
assert records[1].get_time() == start + timedelta(minutes=1)
assert (records[0].get_measurement(), records[0].get_field(), records[0]["room"]) == ("air", "temperature", "hall")
assert sorted(column.label for column in tables[0].get_group_key()) == ["_field", "_measurement", "_start", "_stop", "room"]

means = query.query(f"{source} |> filter(fn: (r) => r._field == \"people\") |> aggregateWindow(every: 5m, fn: mean, createEmpty: false)")
assert [[(record.get_time().minute, record.get_value()) for record in table.records] for table in means] == [[(5, 2.0), (10, 7.0)]] * 2

pivoted = query.query(f'{source} |> pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value") |> map(fn: (r) => ({{r with ratio: r.temperature / float(v: r.people + 1)}})) |> limit(n: 1)')
assert [table.records[0]["ratio"] for table in pivoted] == [20.0, 20.0]

rows = [row for row in query.query_csv(f"{source} |> count()") if row and not row[0].startswith("#")]
assert rows[0][:3] == ["", "result", "table"] and len(rows) == 5, rows

named = query.query(f'{source} |> last() |> yield(name: "last")\n{source} |> first() |> yield(name: "first")')
assert {record["result"] for table in named for record in table.records} == {"last", "first"}

for script, words in [
    (f"{source} |> holtWinters(n: 1)", "holtWinters"),
    ('from(bucket: "nowhere") |> range(start: -1h)', "could not find bucket"),
    ("from(bucket:", "compilation failed"),
]:
    try:
        query.query(script)
    except ApiException as error:
        assert error.status == 400 and words in error.body.decode() if isinstance(error.body, bytes) else words in error.body, error.body
    else:
        raise AssertionError(script)
client.close()
print("all is well")
