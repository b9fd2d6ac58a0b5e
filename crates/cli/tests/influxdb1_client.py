"""What programs do with InfluxDB's own Python client, against the server on the port that is given."""

import sys

from influxdb import InfluxDBClient

client = InfluxDBClient(host="127.0.0.1", port=int(sys.argv[1]))
assert client.ping().startswith("1.8")
client.create_database("home")
assert {"name": "home"} in client.get_list_database()
client.switch_database("home")
points = [
    {
        "measurement": "climate",
        "tags": {"room": room},
        "time": second * 1_000_000_000,
        "fields": {"temperature": 20.0 + second, "open": second % 2 == 0, "people": second, "note": "a \"quoted\" text"},
    }
    for room in ("kitchen", "hall")
    for second in range(10)
]
assert client.write_points(points)
means = client.query("SELECT mean(temperature) FROM climate GROUP BY room")
assert list(means.get_points(tags={"room": "hall"})) == [{"time": "1970-01-01T00:00:00Z", "mean": 24.5}]
rows = list(client.query("SELECT * FROM climate WHERE room = $room AND people > 7", bind_params={"room": "hall"}).get_points())
assert [row["people"] for row in rows] == [8, 9] and rows[0]["note"] == 'a "quoted" text' and rows[1]["open"] is False
windows = client.query(
    "SELECT max(people) FROM climate WHERE time >= 0s AND time < 15s GROUP BY time(5s) fill(0)", epoch="s"
)
assert [(row["time"], row["max"]) for row in windows.get_points()] == [(0, 4), (5, 9), (10, 0)]
chunked = client.query("SELECT people FROM climate", chunked=True, chunk_size=3)
assert sum(len(list(part.get_points())) for part in chunked) == 20
assert client.get_list_measurements() == [{"name": "climate"}]
assert client.get_list_series() == ["climate,room=hall", "climate,room=kitchen"]
client.delete_series(measurement="climate", tags={"room": "hall"})
assert client.get_list_series() == ["climate,room=kitchen"]
client.drop_measurement("climate")
assert client.get_list_measurements() == []
client.alter_retention_policy("autogen", database="home", duration="30d", replication=1, default=True)
assert client.get_list_retention_policies()[0]["duration"] == "720h0m0s"
client.drop_database("home")
assert {"name": "home"} not in client.get_list_database()
print("all is well")
