/* The whole surface of the library, with what goes wrong; tests/programs.rs compiles it with AddressSanitizer and runs it in an empty folder. */

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <thalweg.h>
#include <unistd.h>

#define S thalweg_str
#define DB ((thalweg_str_t){NULL, 0})
#define MS 1000000LL
#define BEGIN 1700000000000LL
#define LAST INT64_MAX
#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);       \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

static thalweg_error_t *error;

static int contains(thalweg_str_t text, const char *part) {
  char *copy = calloc(text.len + 1, 1);
  memcpy(copy, text.data, text.len);
  int found = strstr(copy, part) != NULL;
  if (!found) fprintf(stderr, "\"%s\" is not in: %s\n", part, copy);
  free(copy);
  return found;
}

static int equals(thalweg_str_t text, const char *other) {
  return text.len == strlen(other) && memcmp(text.data, other, text.len) == 0;
}

/* The call went well. */
static void well(thalweg_code_t code) {
  if (code != THALWEG_OK) {
    thalweg_str_t message = thalweg_error_message(error);
    fprintf(stderr, "code %d: %.*s\n", (int)code, (int)message.len, message.data);
    exit(1);
  }
  CHECK(error == NULL);
}

/* The call failed with this code, and the message says this. */
static void fails(thalweg_code_t code, thalweg_code_t expected, const char *part) {
  if (code != expected) fprintf(stderr, "code %d, not %d\n", (int)code, (int)expected);
  CHECK(code == expected && error != NULL && thalweg_error_code(error) == expected);
  CHECK(contains(thalweg_error_message(error), part));
  thalweg_error_free(error);
  error = NULL;
}

static void opens(const char *folder) {
  thalweg_db_t *db = NULL, *second = NULL;
  fails(thalweg_open(S(folder), S("{\"memory\": 1}"), &db, &error), THALWEG_INVALID, "there is no option \"memory\"");
  fails(thalweg_open(S(""), S(""), &db, &error), THALWEG_INVALID, "the path is empty");
  fails(thalweg_open(S(folder), S("\xff"), &db, &error), THALWEG_INVALID, "the options is not UTF-8");
  fails(thalweg_open(S(folder), S(""), NULL, &error), THALWEG_INVALID, "db is null");
  CHECK(db == NULL);
  well(thalweg_open(S(folder), S("{\"memory_bytes_max\": 268435456}"), &db, &error));
  fails(thalweg_open(S(folder), S(""), &second, &error), THALWEG_LOCKED, "");
  CHECK(second == NULL);
  well(thalweg_close(db, &error));
  well(thalweg_close(db, &error));
  fails(thalweg_flush(db, &error), THALWEG_CLOSED, "closed");
  well(thalweg_open(S(folder), S(""), &second, &error));
  thalweg_db_free(second);
  thalweg_db_free(db);
  thalweg_db_free(NULL);
}

static void writes_lines(thalweg_db_t *db) {
  thalweg_written_t written;
  well(thalweg_write_lines(db, DB, S("cpu,host=a usage=0.5,cores=4i 1700000000000\ncpu,host=b usage=0.25,cores=8i 1700000000000\n"
                                     "cpu,host=a usage=1.5 1700000001000\n"),
                           S("ms"), &written, &error));
  CHECK(written.rows_written == 3 && written.values_written == 5 && written.rows_rejected == 0);
  fails(thalweg_write_lines(db, DB, S("cpu,host=a usage=2.5 1700000002000\ncpu usage\n"), S("ms"), &written, &error),
        THALWEG_REJECTED, "1 rows were left out, 1 are written: row 2: ");
  CHECK(written.rows_written == 1 && written.rows_rejected == 1);
  fails(thalweg_write_lines(db, DB, S("x y=1"), S("fortnights"), NULL, &error), THALWEG_INVALID, "it is ns, us, ms or s");
  fails(thalweg_write_lines(NULL, DB, S("x y=1"), S(""), NULL, &error), THALWEG_INVALID, "db is null");
  /* Without a place for an error the code is there all the same. */
  CHECK(thalweg_write_lines(NULL, DB, S("x y=1"), S(""), NULL, NULL) == THALWEG_INVALID);
}

static void writes_columns(thalweg_db_t *db) {
  int64_t times[] = {BEGIN * MS, BEGIN * MS + 1, BEGIN * MS + 2};
  thalweg_str_t hosts[] = {S("a"), S("b"), S("a")};
  double celsius[] = {20.5, 21.5, 22.5};
  uint64_t bytes[] = {1, UINT64_MAX, 3};
  uint8_t up[] = {1, 0, 7}, some[] = {1, 0, 1};
  thalweg_str_t notes[] = {S("fan"), S(""), S("gr\xc3\xbc\xc3\x9f")};
  thalweg_tag_t tags[] = {{S("host"), hosts}};
  thalweg_field_t fields[] = {{S("celsius"), THALWEG_F64, celsius, some},
                              {S("bytes"), THALWEG_U64, bytes, NULL},
                              {S("up"), THALWEG_BOOL, up, NULL},
                              {S("note"), THALWEG_TEXT, notes, some}};
  thalweg_columns_t columns = {S("room"), 3, times, tags, 1, fields, 4};
  thalweg_written_t written;
  well(thalweg_write_columns(db, S(""), &columns, &written, &error));
  CHECK(written.rows_written == 3 && written.values_written == 10);

  columns.fields_len = 0;
  fails(thalweg_write_columns(db, DB, &columns, NULL, &error), THALWEG_INVALID, "there is no field");
  columns.fields_len = 4;
  columns.times_ns = NULL;
  fails(thalweg_write_columns(db, DB, &columns, NULL, &error), THALWEG_INVALID, "times_ns is null and has 3 elements");
  columns.times_ns = times;
  fields[0].value_type = 17;
  fails(thalweg_write_columns(db, DB, &columns, NULL, &error), THALWEG_INVALID, "there is no type 17");
  fields[0].value_type = THALWEG_F64;
  fails(thalweg_write_columns(db, DB, NULL, NULL, &error), THALWEG_INVALID, "columns is null");
  hosts[1] = S("line\nend");
  fails(thalweg_write_columns(db, DB, &columns, &written, &error), THALWEG_REJECTED, "row 2: ");
  CHECK(written.rows_written == 2 && written.rows_rejected == 1);
}

static void finds_series(thalweg_db_t *db) {
  thalweg_series_t *series = NULL;
  well(thalweg_series_find(db, DB, S("{__name__=~\"cpu_.*\"}"), 0, LAST, 0, &series, &error));
  CHECK(thalweg_series_len(series) == 4);
  CHECK(equals(thalweg_series_selector(series, 0), "{__name__=\"cpu_cores\", host=\"a\"}"));
  CHECK(equals(thalweg_series_label(series, 3, S("__name__")), "cpu_usage"));
  CHECK(equals(thalweg_series_label(series, 3, S("host")), "b"));
  CHECK(thalweg_series_label(series, 3, S("none")).len == 0 && thalweg_series_label(series, 4, S("host")).len == 0);
  CHECK(thalweg_series_selector(series, 4).len == 0);
  /* A selector that was found leads to its samples. */
  size_t count = 0;
  well(thalweg_range_f64(db, DB, thalweg_series_selector(series, 2), 0, LAST, NULL, NULL, 0, &count, &error));
  CHECK(count == 3);
  thalweg_series_free(series);
  well(thalweg_series_find(db, DB, S("cpu_usage"), 0, 1, 0, &series, &error));
  CHECK(thalweg_series_len(series) == 0);
  thalweg_series_free(series);
  well(thalweg_series_find(db, DB, S("cpu_usage"), 0, LAST, 1, &series, &error));
  CHECK(thalweg_series_len(series) == 1);
  thalweg_series_free(series);
  thalweg_series_free(NULL);
  CHECK(thalweg_series_len(NULL) == 0);
  fails(thalweg_series_find(db, DB, S("{"), 0, LAST, 0, &series, &error), THALWEG_INVALID, "parse error");
  CHECK(series == NULL);
}

static void reads_ranges(thalweg_db_t *db) {
  int64_t times[4] = {-1, -1, -1, -1}, integers[4];
  double values[4] = {-1, -1, -1, -1};
  size_t count = 0;
  thalweg_str_t usage = S("cpu_usage{host=\"a\"}");
  well(thalweg_range_f64(db, DB, usage, 0, LAST, NULL, NULL, 0, &count, &error));
  CHECK(count == 3);
  well(thalweg_range_f64(db, DB, usage, 0, LAST, times, values, 2, &count, &error));
  CHECK(count == 3 && times[0] == BEGIN * MS && times[1] == (BEGIN + 1000) * MS && times[2] == -1);
  CHECK(values[0] == 0.5 && values[1] == 1.5 && values[2] == -1);
  well(thalweg_range_f64(db, DB, usage, BEGIN * MS + 1, (BEGIN + 1000) * MS, times, values, 4, &count, &error));
  CHECK(count == 1 && values[0] == 1.5);
  well(thalweg_range_i64(db, DB, S("cpu_cores{host=\"b\"}"), 0, LAST, times, integers, 4, &count, &error));
  CHECK(count == 1 && integers[0] == 8);
  well(thalweg_range_f64(db, DB, S("room_up{host=\"a\"}"), 0, LAST, times, values, 4, &count, &error));
  CHECK(count == 2 && values[0] == 1 && values[1] == 1);
  fails(thalweg_range_i64(db, DB, S("room_bytes{host=\"b\"}"), 0, LAST, times, integers, 4, &count, &error), THALWEG_INVALID,
        "beyond 64 signed bits");
  fails(thalweg_range_f64(db, DB, S("room_note{host=\"a\"}"), 0, LAST, times, values, 4, &count, &error), THALWEG_INVALID,
        "string values, not numbers");
  fails(thalweg_range_i64(db, DB, usage, 0, LAST, times, integers, 4, &count, &error), THALWEG_INVALID, "not integers");
  fails(thalweg_range_f64(db, DB, S("cpu_usage"), 0, LAST, times, values, 4, &count, &error), THALWEG_INVALID, "selects 2 series");
  fails(thalweg_range_f64(db, DB, S("nothing"), 0, LAST, times, values, 4, &count, &error), THALWEG_NOT_FOUND, "nothing");
  fails(thalweg_range_f64(db, DB, usage, 0, LAST, times, values, 4, NULL, &error), THALWEG_INVALID, "len is null");
}

/* The column of a name in a batch, and its format. */
static struct ArrowArray *column(struct ArrowSchema *schema, struct ArrowArray *batch, const char *name, const char *format) {
  for (int64_t index = 0; index < schema->n_children; index++) {
    if (strcmp(schema->children[index]->name, name) == 0) {
      CHECK(strcmp(schema->children[index]->format, format) == 0);
      return batch->children[index];
    }
  }
  fprintf(stderr, "there is no column %s\n", name);
  exit(1);
}

/* The only batch of a stream. */
static void only_batch(struct ArrowArrayStream *stream, struct ArrowSchema *schema, struct ArrowArray *batch) {
  struct ArrowArray end;
  CHECK(stream->get_schema(stream, schema) == 0);
  CHECK(stream->get_next(stream, batch) == 0 && batch->release != NULL);
  CHECK(stream->get_next(stream, &end) == 0 && end.release == NULL);
  stream->release(stream);
  CHECK(stream->release == NULL);
}

static double number(struct ArrowArray *array, int64_t row) { return ((const double *)array->buffers[1])[array->offset + row]; }

static int64_t integer(struct ArrowArray *array, int64_t row) { return ((const int64_t *)array->buffers[1])[array->offset + row]; }

static int is_null(struct ArrowArray *array, int64_t row) {
  int64_t bit = array->offset + row;
  return array->null_count != 0 && (((const uint8_t *)array->buffers[0])[bit / 8] >> (bit % 8) & 1) == 0;
}

static thalweg_str_t text(struct ArrowArray *array, int64_t row) {
  const int32_t *offsets = (const int32_t *)array->buffers[1] + array->offset;
  return (thalweg_str_t){(const char *)array->buffers[2] + offsets[row], (size_t)(offsets[row + 1] - offsets[row])};
}

static void queries(thalweg_db_t *db) {
  struct ArrowArrayStream stream;
  struct ArrowSchema schema;
  struct ArrowArray batch;
  well(thalweg_sql(db, DB, S("SELECT time, host, usage, cores FROM cpu WHERE usage > $1 ORDER BY time, host"), S("[0.3]"), &stream,
                   &error));
  only_batch(&stream, &schema, &batch);
  CHECK(batch.length == 3);
  CHECK(integer(column(&schema, &batch, "time", "tsn:UTC"), 0) == BEGIN * MS);
  CHECK(equals(text(column(&schema, &batch, "host", "u"), 2), "a"));
  CHECK(number(column(&schema, &batch, "usage", "g"), 1) == 1.5);
  CHECK(integer(column(&schema, &batch, "cores", "l"), 0) == 4 && is_null(column(&schema, &batch, "cores", "l"), 1));
  batch.release(&batch);
  schema.release(&schema);

  well(thalweg_promql(db, DB, S("sum(cpu_usage)"), BEGIN + 500, &stream, &error));
  only_batch(&stream, &schema, &batch);
  CHECK(batch.length == 1 && number(column(&schema, &batch, "value", "g"), 0) == 0.75);
  batch.release(&batch);
  schema.release(&schema);

  well(thalweg_promql_range(db, DB, S("cpu_usage{host=\"a\"}"), BEGIN, BEGIN + 2000, 1000, &stream, &error));
  only_batch(&stream, &schema, &batch);
  CHECK(batch.length == 3 && number(column(&schema, &batch, "value", "g"), 2) == 2.5);
  CHECK(equals(text(column(&schema, &batch, "__name__", "u"), 0), "cpu_usage"));
  batch.release(&batch);
  schema.release(&schema);

  well(thalweg_influxql(db, DB, S("SELECT max(usage) FROM cpu GROUP BY host"), &stream, &error));
  only_batch(&stream, &schema, &batch);
  CHECK(batch.length == 2 && number(column(&schema, &batch, "max", "g"), 0) == 2.5);
  CHECK(equals(text(column(&schema, &batch, "iox::measurement", "u"), 1), "cpu"));
  batch.release(&batch);
  schema.release(&schema);

  fails(thalweg_sql(db, DB, S("SELEC 1"), S(""), &stream, &error), THALWEG_INVALID, "SELEC");
  fails(thalweg_sql(db, DB, S("SELECT * FROM nothing"), S(""), &stream, &error), THALWEG_NOT_FOUND, "nothing");
  fails(thalweg_sql(db, DB, S("SELECT $1"), S("{}"), &stream, &error), THALWEG_INVALID, "JSON array");
  fails(thalweg_sql(db, DB, S(""), S(""), &stream, &error), THALWEG_INVALID, "no statement");
  fails(thalweg_sql(db, DB, S("SELECT 1"), S(""), NULL, &error), THALWEG_INVALID, "stream is null");
  fails(thalweg_sql(db, DB, S("CREATE USER u WITH PASSWORD 'p'"), S(""), &stream, &error), THALWEG_UNSUPPORTED, "accounts");
  fails(thalweg_promql(db, DB, S("sum("), BEGIN, &stream, &error), THALWEG_INVALID, "parse error");
  fails(thalweg_influxql(db, DB, S("SELECT"), &stream, &error), THALWEG_INVALID, "error parsing query");
}

/* The result of a query is the rows of another table. */
static void writes_arrow(thalweg_db_t *db) {
  struct ArrowArrayStream stream;
  struct ArrowSchema schema;
  struct ArrowArray batch;
  thalweg_written_t written;
  const char *all = "SELECT time AS at, host, usage, cores FROM cpu";
  thalweg_str_t tags[] = {S("host")};
  well(thalweg_sql(db, DB, S(all), S(""), &stream, &error));
  well(thalweg_write_arrow(db, DB, S("copied"), S("at"), tags, 1, &stream, &written, &error));
  CHECK(written.rows_written == 4 && stream.release == NULL);
  well(thalweg_sql(db, DB, S("SELECT count(*) AS n FROM copied WHERE host = 'a'"), S(""), &stream, &error));
  only_batch(&stream, &schema, &batch);
  CHECK(integer(column(&schema, &batch, "n", "l"), 0) == 3);
  batch.release(&batch);
  schema.release(&schema);

  well(thalweg_sql(db, DB, S(all), S(""), &stream, &error));
  fails(thalweg_write_arrow(db, DB, S("copied"), S(""), NULL, 0, &stream, NULL, &error), THALWEG_INVALID, "no column \"time\"");
  CHECK(stream.release == NULL);
  fails(thalweg_write_arrow(db, DB, S("copied"), S(""), NULL, 0, &stream, NULL, &error), THALWEG_INVALID, "stream");
  fails(thalweg_write_arrow(db, DB, S("copied"), S(""), NULL, 0, NULL, NULL, &error), THALWEG_INVALID, "stream is null");
}

static void deletes(thalweg_db_t *db) {
  uint64_t series = 0;
  size_t count = 0;
  well(thalweg_delete(db, DB, S("copied_usage{host=\"a\"}"), BEGIN * MS, BEGIN * MS + 1, &series, &error));
  CHECK(series == 1);
  well(thalweg_range_f64(db, DB, S("copied_usage{host=\"a\"}"), 0, LAST, NULL, NULL, 0, &count, &error));
  CHECK(count == 2);
  fails(thalweg_delete(db, DB, S("{"), 0, 1, NULL, &error), THALWEG_INVALID, "parse error");
}

static void interrupts(thalweg_db_t *db) {
  struct ArrowArrayStream stream;
  struct ArrowArray batch;
  well(thalweg_sql(db, DB, S("SELECT * FROM cpu"), S(""), &stream, &error));
  thalweg_interrupt(db);
  CHECK(stream.get_next(&stream, &batch) != 0);
  CHECK(contains(S(stream.get_last_error(&stream)), "canceled"));
  stream.release(&stream);
  thalweg_interrupt(NULL);
  /* What comes after is not interrupted. */
  well(thalweg_sql(db, DB, S("SELECT * FROM cpu"), S(""), &stream, &error));
  CHECK(stream.get_next(&stream, &batch) == 0);
  batch.release(&batch);
  stream.release(&stream);
}

#define THREADS 4
#define ROWS 200

struct job {
  thalweg_db_t *db;
  int number;
};

static void *writes_and_reads(void *argument) {
  struct job *job = argument;
  char line[100], selector[100];
  snprintf(selector, sizeof selector, "load{thread=\"%d\"}", job->number);
  for (int row = 0; row < ROWS; row++) {
    snprintf(line, sizeof line, "load,thread=%d value=%d %lld", job->number, row, (BEGIN + row) * MS);
    CHECK(thalweg_write_lines(job->db, DB, S(line), S(""), NULL, NULL) == THALWEG_OK);
    if (row % 50 == 0) {
      size_t count = 0;
      CHECK(thalweg_range_f64(job->db, DB, S(selector), 0, LAST, NULL, NULL, 0, &count, NULL) == THALWEG_OK);
      CHECK(count == (size_t)row + 1);
    }
  }
  return NULL;
}

static void is_shared_by_threads(thalweg_db_t *db) {
  pthread_t threads[THREADS];
  struct job jobs[THREADS];
  for (int number = 0; number < THREADS; number++) {
    jobs[number] = (struct job){db, number};
    CHECK(pthread_create(&threads[number], NULL, writes_and_reads, &jobs[number]) == 0);
  }
  for (int number = 0; number < THREADS; number++) CHECK(pthread_join(threads[number], NULL) == 0);
}

static void keeps_epochs(thalweg_db_t *db) {
  const int64_t minute = 60000 * MS, begin = 1700000040000 * MS;
  struct ArrowArrayStream stream;
  well(thalweg_sql(db, DB, S("CREATE DATABASE dns WITH (interval = '1m', value = int, overwrite = refuse)"), S(""), &stream, &error));
  stream.release(&stream);
  thalweg_str_t names[] = {thalweg_str("a.it"), thalweg_str("b.it")};
  int64_t counts[] = {3, 5}, again[] = {4, 5};
  thalweg_epoch_written_t written;
  well(thalweg_epoch_write_i64(db, S("dns"), begin + 5, names, counts, 2, &written, &error));
  CHECK(written.time_ns == begin && written.written == 2 && written.names_added == 2);
  fails(thalweg_epoch_write_i64(db, S("dns"), begin, names, again, 2, &written, &error), THALWEG_REJECTED, "a.it");
  CHECK(written.refused == 1 && written.unchanged == 1);
  /* A part of an epoch. */
  double more = 6;
  well(thalweg_epoch_write_f64(db, S("dns"), begin + minute, &names[1], &more, 1, NULL, &error));
  uint64_t removed = 0;
  well(thalweg_epoch_remove(db, S("dns"), begin + 2 * minute, names, 1, &removed, &error));
  CHECK(removed == 1);
  well(thalweg_epoch_write_i64(db, S("dns"), begin + 2 * minute, &names[1], counts, 1, NULL, &error));
  well(thalweg_epoch_write_i64(db, S("dns"), begin + 3 * minute, names, counts, 1, NULL, &error));
  int64_t times[4], values[4];
  double floats[4];
  uint8_t statuses[4];
  size_t len = 0;
  well(thalweg_epoch_range_i64(db, S("dns"), S("a.it"), 0, LAST, times, values, statuses, 4, &len, &error));
  CHECK(len == 4 && times[0] == begin && times[3] == begin + 3 * minute);
  CHECK(values[0] == 3 && values[3] == 3);
  CHECK(statuses[0] == THALWEG_VALUE && statuses[1] == THALWEG_MISSING && statuses[2] == THALWEG_UNDEFINED && statuses[3] == THALWEG_VALUE);
  well(thalweg_epoch_range_f64(db, S("dns"), S("a.it"), 0, LAST, NULL, floats, NULL, 2, &len, &error));
  CHECK(len == 4 && floats[0] == 3 && floats[1] != floats[1]);
  fails(thalweg_epoch_range_i64(db, S("dns"), S("x"), 0, LAST, times, values, statuses, 4, &len, &error), THALWEG_NOT_FOUND, "\"x\"");
  thalweg_epoch_t *epoch = NULL;
  well(thalweg_epoch_read(db, S("dns"), begin + minute + 7, &epoch, &error));
  CHECK(thalweg_epoch_len(epoch) == 2 && thalweg_epoch_time_ns(epoch) == begin + minute);
  thalweg_epoch_value_t there = thalweg_epoch_get(epoch, 0), missing = thalweg_epoch_get(epoch, 1);
  CHECK(equals(there.name, "b.it") && there.integer == 6 && there.number == 6 && there.status == THALWEG_VALUE);
  CHECK(equals(missing.name, "a.it") && missing.number != missing.number && missing.status == THALWEG_MISSING);
  CHECK(thalweg_epoch_get(epoch, 2).name.len == 0 && thalweg_epoch_get(NULL, 0).name.len == 0 && thalweg_epoch_len(NULL) == 0);
  thalweg_epoch_free(epoch);
  thalweg_epoch_free(NULL);
  fails(thalweg_epoch_read(db, DB, begin, &epoch, &error), THALWEG_INVALID, "is not regular");
  fails(thalweg_epoch_read(db, S("dns"), begin, NULL, &error), THALWEG_INVALID, "epoch is null");
  thalweg_validities_t *validities = NULL;
  well(thalweg_validities_find(db, S("dns"), S("a.*"), &validities, &error));
  CHECK(thalweg_validities_len(validities) == 2);
  thalweg_validity_t first = thalweg_validities_get(validities, 0), second = thalweg_validities_get(validities, 1);
  CHECK(equals(first.name, "a.it") && first.from_ns == begin && first.to_ns == begin + 2 * minute);
  CHECK(second.from_ns == begin + 3 * minute && second.to_ns == LAST);
  CHECK(thalweg_validities_get(validities, 2).name.len == 0);
  thalweg_validities_free(validities);
}

/* Files that rrdtool reads: programs.rs lets it fetch from them. */
static void exports_rrd(thalweg_db_t *db, const char *folder) {
  char line[100], path[4096];
  for (int row = 1; row <= 20; row++) {
    snprintf(line, sizeof line, "gauge,host=a value=%d %lld", row, (1699999980000 + row * 60000) * MS);
    well(thalweg_write_lines(db, DB, S(line), S(""), NULL, &error));
  }
  thalweg_str_t definition[] = {S("DS:load:GAUGE:120:U:U"), S("RRA:LAST:0.5:1:30")};
  const char *endings[] = {"rrd", "xml"};
  for (int number = 0; number < 2; number++) {
    snprintf(path, sizeof path, "%s.%s", folder, endings[number]);
    well(thalweg_rrd_export(db, DB, S("gauge{host=\"a\"}"), 60, definition, 2, S(path), &error));
  }
  fails(thalweg_rrd_export(db, DB, S("gauge"), 60, definition, 2, S(path), &error), THALWEG_INVALID, path);
  fails(thalweg_rrd_export(db, DB, S("gauge"), 60, NULL, 2, S("x.rrd"), &error), THALWEG_INVALID, "the definition is null");
  fails(thalweg_rrd_export(db, DB, S("gauge"), 60, definition, 1, S("x.rrd"), &error), THALWEG_INVALID, "archive");
  fails(thalweg_rrd_export(db, DB, S("none"), 60, definition, 2, S("x.rrd"), &error), THALWEG_INVALID, "matches 0 series");
}

static size_t samples(thalweg_db_t *db, const char *selector) {
  size_t count = 0;
  well(thalweg_range_f64(db, DB, S(selector), 0, LAST, NULL, NULL, 0, &count, &error));
  return count;
}

/* Another process: what the folder has, while the first one writes to it. */
static int reads_only(const char *folder) {
  thalweg_db_t *db = NULL;
  well(thalweg_open_read_only(S(folder), S(""), &db, &error));
  fails(thalweg_write_lines(db, DB, S("shared v=1"), S(""), NULL, &error), THALWEG_INVALID, "open for reading only");
  fails(thalweg_delete(db, DB, S("shared_v"), 0, LAST, NULL, &error), THALWEG_INVALID, "open for reading only");
  size_t before = samples(db, "shared_v");
  CHECK(before > 0);
  while (samples(db, "shared_v") < ROWS) {
    well(thalweg_refresh(db, &error));
    size_t after = samples(db, "shared_v");
    CHECK(after >= before);
    before = after;
  }
  well(thalweg_close(db, &error));
  fails(thalweg_refresh(db, &error), THALWEG_CLOSED, "closed");
  thalweg_db_free(db);
  return 0;
}

static void is_read_by_other_processes(thalweg_db_t *db, const char *program, const char *folder) {
  well(thalweg_write_lines(db, DB, S("shared v=0 0"), S(""), NULL, &error));
  pid_t readers[2];
  for (int number = 0; number < 2; number++) {
    readers[number] = fork();
    CHECK(readers[number] >= 0);
    if (readers[number] == 0) {
      execl(program, program, folder, "reads", (char *)NULL);
      _exit(127);
    }
  }
  char line[100];
  for (int row = 1; row < ROWS; row++) {
    snprintf(line, sizeof line, "shared v=%d %lld", row, row * MS);
    well(thalweg_write_lines(db, DB, S(line), S(""), NULL, &error));
    if (row % 50 == 0) well(thalweg_flush(db, &error));
  }
  for (int number = 0; number < 2; number++) {
    int status = 0;
    CHECK(waitpid(readers[number], &status, 0) == readers[number]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  well(thalweg_refresh(db, &error));
}

int main(int argc, char **argv) {
  if (argc == 3) return reads_only(argv[1]);
  CHECK(argc == 2);
  CHECK(thalweg_version().len > 0);
  opens(argv[1]);
  thalweg_db_t *db = NULL;
  well(thalweg_open(S(argv[1]), S(""), &db, &error));
  writes_lines(db);
  writes_columns(db);
  finds_series(db);
  reads_ranges(db);
  queries(db);
  writes_arrow(db);
  deletes(db);
  interrupts(db);
  is_shared_by_threads(db);
  keeps_epochs(db);
  exports_rrd(db, argv[1]);
  well(thalweg_flush(db, &error));
  struct ArrowArrayStream stream;
  struct ArrowArray batch;
  well(thalweg_sql(db, DB, S("SELECT * FROM cpu"), S(""), &stream, &error));
  thalweg_db_free(db);
  /* The result outlives the database; it says that it was interrupted. */
  CHECK(stream.get_next(&stream, &batch) != 0);
  stream.release(&stream);

  well(thalweg_open(S(argv[1]), S(""), &db, &error));
  size_t count = 0;
  well(thalweg_range_f64(db, DB, S("load{thread=\"3\"}"), 0, LAST, NULL, NULL, 0, &count, &error));
  CHECK(count == ROWS);
  is_read_by_other_processes(db, argv[0], argv[1]);
  well(thalweg_close(db, &error));
  thalweg_db_free(db);
  puts("well");
  return 0;
}
