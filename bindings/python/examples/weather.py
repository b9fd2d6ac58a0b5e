# %% [markdown]
# # A week of weather in process
#
# Run it as it is, or cell by cell in Jupyter or VS Code. It needs `pip install thalweg pyarrow pandas`; polars if it is there.

# %%
import sys
import tempfile

import numpy
import pandas
import thalweg

db = thalweg.open(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())

# %% [markdown]
# ## Write a frame
# The column `time` is the time; texts become tags, numbers fields.

# %%
times = pandas.date_range("2026-01-01", "2026-01-07 23:50", freq="10min", tz="UTC")
hours = (times - times[0]).total_seconds().to_numpy() / 3600
frames = [
    pandas.DataFrame({"time": times, "station": station, "celsius": mean + 4 * numpy.sin(2 * numpy.pi * hours / 24)})
    for station, mean in [("harbour", 8.0), ("hill", 4.0)]
]
print(db.write("weather", pandas.concat(frames)), "rows")

# %% [markdown]
# ## Ask in SQL, as pandas

# %%
daily = db.sql(
    """SELECT date_trunc('day', time) AS day, station, min(celsius) AS low, max(celsius) AS high
       FROM weather GROUP BY day, station ORDER BY day, station"""
).to_pandas()
print(daily.head(4).round(2).to_string(index=False))

# %% [markdown]
# ## Ask in PromQL, as NumPy
# The arrays are the result's own memory: nothing is copied.

# %%
spread = db.promql(
    'weather_celsius{station="harbour"} - ignoring(station) weather_celsius{station="hill"}',
    start=times[0],
    end=times[-1],
    step=3600,
).to_numpy()
print(len(spread["value"]), "hours,", "spread", spread["value"].min().round(6), "to", spread["value"].max().round(6))

# %% [markdown]
# ## Ask in InfluxQL, as Arrow

# %%
table = db.influxql("SELECT mean(celsius) FROM weather WHERE time < '2026-01-03T00:00:00Z' GROUP BY time(1d), station").to_arrow()
print(table.column_names)
print([round(value, 6) for value in table["mean"].to_pylist() if value is not None])

# %% [markdown]
# ## Other frames
# polars, and everything else that takes Arrow's stream, reads results as they are.

# %%
try:
    import polars
except ImportError:
    polars = None
if polars is not None:
    warm = polars.DataFrame(db.sql("SELECT station, celsius FROM weather WHERE celsius >= 11.9"))
    print(warm.group_by("station").len().rows())

# %%
db.close()
