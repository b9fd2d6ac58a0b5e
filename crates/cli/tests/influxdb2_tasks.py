"""Tasks by InfluxDB 2's own Python client, against the server on the port that is given."""

import sys
import time
from datetime import datetime, timedelta, timezone

from influxdb_client import InfluxDBClient, Point, TaskCreateRequest
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

client = InfluxDBClient(url=f"http://127.0.0.1:{sys.argv[1]}", token="unused", org="home")
organization = client.organizations_api().find_organizations()[0]
for name in ("fine", "coarse"):
    client.buckets_api().create_bucket(bucket_name=name, org_id=organization.id)
write = client.write_api(write_options=SYNCHRONOUS)
tasks = client.tasks_api()


def put(at, value, **tags):
    point = Point("air").field("temperature", value).time(at)
    for tag in tags.items():
        point = point.tag(*tag)
    write.write(bucket="fine", record=point)


def refused(script, words):
    try:
        tasks.create_task(task_create_request=TaskCreateRequest(org_id=organization.id, flux=script))
    except ApiException as error:
        body = error.body.decode() if isinstance(error.body, bytes) else error.body
        assert error.status == 400 and words in body, (error.status, body)
    else:
        raise AssertionError(script)


put(datetime.now(timezone.utc), 1.0, room="hall")
source = 'from(bucket: "fine") |> range(start: -task.every) |> filter(fn: (r) => r._measurement == "air" and r._field == "temperature")'
window = "aggregateWindow(every: 1s, fn: mean, createEmpty: false)"
flux = f'{source} |> {window} |> set(key: "_measurement", value: "air_1s") |> to(bucket: "coarse", org: "home")'
task = tasks.create_task_every("down", flux, "1m", organization)
assert (task.name, task.every, task.status, task.cron) == ("down", "1m", "active", None), task
assert len(task.id) == 16 and task.flux.endswith('option task = {name: "down", every: 1m}'), task.flux

option = 'option task = {name: "x", every: 1m}\n'
refused(f"{option}{source} |> {window} |> pivot() |> to(bucket: \"coarse\")", "pivot()")
refused(f"{option}{source} |> holtWinters(n: 1) |> {window} |> to(bucket: \"coarse\")", "holtWinters()")
refused(f"{option}{source} |> {window}", "no to()")
refused(f"{source} |> {window} |> to(bucket: \"coarse\")", "option task")
refused(f"{option}{source} |> {window} |> to(bucket: \"nowhere\")", "database not found: nowhere")
refused(f"{option}{source} |> {window} |> to(bucket: \"fine\")", "would read itself")
refused(f'option task = {{name: "x", cron: "7 * * * *"}}\n{source.replace("-task.every", "-1h")} |> {window} |> to(bucket: "coarse")', "cron")

# As often as every minute by its script; a run that is asked for is at once.
first = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=1)
put(first + timedelta(milliseconds=100), 10.0, room="hall")
put(first + timedelta(milliseconds=900), 20.0, room="hall")
put(first + timedelta(milliseconds=500), 5.0, room="kitchen")
query = client.query_api()


def rows():
    found = query.query('from(bucket: "coarse") |> range(start: -1h, stop: 1h) |> filter(fn: (r) => r._measurement == "air_1s")')
    return {(record["room"], record.get_time(), record.values.get("floor")): record.get_value() for table in found for record in table.records}


def wait_for(expected):
    end = time.monotonic() + 60
    while not all(rows().get(key) == value for key, value in expected.items()):
        assert time.monotonic() < end, (rows(), expected, tasks.get_logs(task.id))
        tasks.run_manually(task.id)
        time.sleep(0.1)


stop = first + timedelta(seconds=1)
wait_for({("hall", stop, None): 15.0, ("kitchen", stop, None): 5.0})
# A late sample counts, and so does one with a tag that there was not when the task was made.
put(first + timedelta(milliseconds=200), 60.0, room="hall")
put(first + timedelta(milliseconds=300), 7.0, room="hall", floor="2")
wait_for({("hall", stop, None): 30.0, ("hall", stop, "2"): 7.0, ("kitchen", stop, None): 5.0})

found = tasks.find_tasks(name="down")
assert [one.id for one in found] == [task.id] and found[0].last_run_status == "success", found
runs = tasks.get_runs(task.id)
assert runs and runs[0].status == "success" and tasks.get_run(task.id, runs[0].id).task_id == task.id
assert "success" in tasks.get_logs(task.id)[0].message

# One that is not active waits, and catches up.
task = tasks.find_task_by_id(task.id)
task.status, task.description, task.every = "inactive", "by the second", "2m"
task = tasks.update_task(task)
assert (task.status, task.description, task.every, task.name) == ("inactive", "by the second", "2m", "down"), task
assert 'every: 2m' in task.flux and task.flux.startswith("from(bucket"), task.flux
assert tasks.find_tasks(status="active") == [] and len(tasks.find_tasks(status="inactive")) == 1
task.status = "active"
assert tasks.update_task(task).status == "active"
copy = tasks.clone_task(task)
assert copy.id != task.id and copy.name == "down"
tasks.delete_task(copy.id)
tasks.delete_task(task.id)
assert tasks.find_tasks() == []
try:
    tasks.find_task_by_id(task.id)
except ApiException as error:
    assert error.status == 404, error
else:
    raise AssertionError("the task is still there")
assert rows()[("hall", stop, None)] == 30.0, "what a task has written stays"
client.close()
print("all is well")
