/* Thalweg in process: a time-series database as a library.
 *
 * Conventions
 * - A call that can fail returns THALWEG_OK or a code that says what to do. Where `error` is not NULL it gets NULL, or an error with a message,
 *   which is to be freed by thalweg_error_free.
 * - Texts are UTF-8 with a length and without a zero at the end: thalweg_str("...") makes one of a literal. They, and all arrays, only have to be
 *   readable until the call returns.
 * - What a call gives is freed by the function that its description names, once; freeing NULL does nothing.
 * - An empty name of a database stands for the database `default`. Times are nanoseconds since the Unix epoch (_ns) but for PromQL's, which are
 *   milliseconds (_ms).
 * - Handles may be shared by threads as each function says. No function may be called in a child of fork() on a handle of its parent.
 *
 * Made by `cargo xtask header`: change bindings/c/src instead.
 */

#ifndef THALWEG_H
#define THALWEG_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Arrow's C data and C stream interfaces, word for word as their specification has them:
 * https://arrow.apache.org/docs/format/CDataInterface.html, https://arrow.apache.org/docs/format/CStreamInterface.html */
#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  // Array type description
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;

  // Release callback
  void (*release)(struct ArrowSchema*);
  // Opaque producer-specific data
  void* private_data;
};

struct ArrowArray {
  // Array data description
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;

  // Release callback
  void (*release)(struct ArrowArray*);
  // Opaque producer-specific data
  void* private_data;
};

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  // Callbacks providing stream functionality
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);

  // Release callback
  void (*release)(struct ArrowArrayStream*);

  // Opaque producer-specific data
  void* private_data;
};

#endif  // ARROW_C_STREAM_INTERFACE

#ifdef __cplusplus
}
#endif


// The outcome of a call: `THALWEG_OK`, or what the caller can do.
enum thalweg_code_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It is done.
  THALWEG_OK = 0,
  // An argument, or the text of a query, is wrong: change it.
  THALWEG_INVALID = 1,
  // There is no such table, column or series.
  THALWEG_NOT_FOUND = 2,
  // Another process has the folder open.
  THALWEG_LOCKED = 3,
  // A file is not what was written, or rows are lost.
  THALWEG_CORRUPT = 4,
  // The operating system or the storage refused.
  THALWEG_IO = 5,
  // It needs more memory or samples than it may have: ask for less at once, or raise the limit that the message names.
  THALWEG_LIMIT = 6,
  // It was interrupted by `thalweg_interrupt` or `thalweg_close`.
  THALWEG_INTERRUPTED = 7,
  // The database is closed.
  THALWEG_CLOSED = 8,
  // This version cannot do it.
  THALWEG_UNSUPPORTED = 9,
  // It cannot be done at present: try again later.
  THALWEG_UNAVAILABLE = 10,
  // Some rows were left out, the message says which and why; the others are written.
  THALWEG_REJECTED = 11,
  // A fault of the library: please report it.
  THALWEG_INTERNAL = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_code_t thalweg_code_t;
#else
typedef int32_t thalweg_code_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The type of a field's values.
enum thalweg_type_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // `double`
  THALWEG_F64 = 0,
  // `int64_t`
  THALWEG_I64 = 1,
  // `uint64_t`
  THALWEG_U64 = 2,
  // `uint8_t`; all but 0 is true.
  THALWEG_BOOL = 3,
  // `thalweg_str_t`
  THALWEG_TEXT = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_type_t thalweg_type_t;
#else
typedef int32_t thalweg_type_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Whether a series has a value in an epoch; as a `uint8_t` in arrays.
enum thalweg_status_t
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It has one.
  THALWEG_VALUE = 0,
  // Nothing was written, and the database has no value for that.
  THALWEG_MISSING = 1,
  // The name was not valid in the epoch: neither zero nor missing.
  THALWEG_UNDEFINED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum thalweg_status_t thalweg_status_t;
#else
typedef uint8_t thalweg_status_t;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// An open database. All threads may share it.
typedef struct thalweg_db_t thalweg_db_t;

// All series that are valid in an epoch.
typedef struct thalweg_epoch_t thalweg_epoch_t;

// Why a call failed. Made where `error` is not null; to be freed by `thalweg_error_free`.
typedef struct thalweg_error_t thalweg_error_t;

// Series that were found. Its texts live as long as it does.
typedef struct thalweg_series_t thalweg_series_t;

// Times in which names are valid.
typedef struct thalweg_validities_t thalweg_validities_t;

// A text: UTF-8 with a length, without a zero at the end. A null `data` is the empty text. `thalweg_str("…")` makes one of a literal.
typedef struct {
  // The first byte.
  const char *data;
  // How many bytes there are.
  size_t len;
} thalweg_str_t;

// The outcome of a write.
typedef struct {
  // Rows that are on disk.
  uint64_t rows_written;
  // Values in them.
  uint64_t values_written;
  // Rows that were left out; if there are any the call returns `THALWEG_REJECTED`.
  uint64_t rows_rejected;
} thalweg_written_t;

// A tag of each row: what tells series apart.
typedef struct {
  // Its name.
  thalweg_str_t name;
  // A value for each row; a row does not have the tag where it is empty.
  const thalweg_str_t *values;
} thalweg_tag_t;

// A field of each row.
typedef struct {
  // Its name.
  thalweg_str_t name;
  // A `thalweg_type_t`: the type of the elements of `values`.
  int32_t value_type;
  // A value for each row.
  const void *values;
  // A byte for each row, 0 where the row does not have the field; null: all rows have it. A row that has no field at all is not written.
  const uint8_t *validity;
} thalweg_field_t;

// Rows of a table: arrays of `rows` elements each.
typedef struct {
  // The table's name.
  thalweg_str_t table;
  // How many rows there are.
  size_t rows;
  // The time of each row, in nanoseconds since the Unix epoch.
  const int64_t *times_ns;
  // `tags_len` tags.
  const thalweg_tag_t *tags;
  // How many tags there are.
  size_t tags_len;
  // `fields_len` fields, at least one.
  const thalweg_field_t *fields;
  // How many fields there are.
  size_t fields_len;
} thalweg_columns_t;

// The outcome of writing an epoch.
typedef struct {
  // The epoch's time: the given one rounded down to the database's interval.
  int64_t time_ns;
  // Values that are on disk.
  uint64_t written;
  // Names that became valid.
  uint64_t names_added;
  // Values that were there already, and the same.
  uint64_t unchanged;
  // Values that were left out because other ones are there; if there are any the call returns `THALWEG_REJECTED`.
  uint64_t refused;
} thalweg_epoch_written_t;

// What a series has in an epoch.
typedef struct {
  // The series' name. It lives as long as the epoch.
  thalweg_str_t name;
  // The value as a float: NaN where there is none.
  double number;
  // The value of a database of integers: 0 where there is none, and in databases of floats.
  int64_t integer;
  // Whether there is one: `THALWEG_VALUE` or `THALWEG_MISSING`.
  uint8_t status;
} thalweg_epoch_value_t;

// A time in which a name has an index.
typedef struct {
  // The name. It lives as long as the list.
  thalweg_str_t name;
  // Where its values lie.
  uint32_t index;
  // The time of the first epoch in which it is valid.
  int64_t from_ns;
  // The time of the first epoch in which it is no more; `INT64_MAX`: it is valid for good.
  int64_t to_ns;
} thalweg_validity_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The code of an error; `THALWEG_OK` for null. Safe from any thread.
thalweg_code_t thalweg_error_code(const thalweg_error_t *error);

// The message of an error, which says what failed, where, and what to do; it lives as long as the error. Safe from any thread.
thalweg_str_t thalweg_error_message(const thalweg_error_t *error);

// Frees an error; null is ignored. Once for each error, when no other thread reads it.
void thalweg_error_free(thalweg_error_t *error);

// The version of the library, as `0.1.0`. Safe from any thread.
thalweg_str_t thalweg_version(void);

// Opens the data folder at `path`, or makes one. One process at a time has it open, `thalweg serve` or one like this; a second one gets
// `THALWEG_LOCKED`, unless it opens the folder for reading only.
//
// `options` is a JSON object, empty for the defaults: `memory_bytes_max` (1 GiB for rows, queries and caches together),
// `result_cache_memory_bytes_max`, `query_samples_max`, `query_helpers` (threads beside the caller's own), `lookback_ms`, `ahead_ms_max`,
// `accept_loss`, `read_only`.
//
// Safe from any thread. Free the database by `thalweg_db_free`.
thalweg_code_t thalweg_open(thalweg_str_t path,
                            thalweg_str_t options,
                            thalweg_db_t **db,
                            thalweg_error_t **error);

// Opens the data folder at `path`, which must be there, for reading only: as it is now, with everything that was acknowledged. Several processes may, also
// while another one writes to it; nothing of the folder is changed. What is written later is seen after `thalweg_refresh`. Calls that write get
// `THALWEG_INVALID`. Otherwise as `thalweg_open`.
thalweg_code_t thalweg_open_read_only(thalweg_str_t path,
                                      thalweg_str_t options,
                                      thalweg_db_t **db,
                                      thalweg_error_t **error);

// Sees what another process has written since a database was opened for reading only, or refreshed. Results that are being read go on as they are.
// It takes as long as opening. Safe from any thread; nothing for a database that is open for writing.
thalweg_code_t thalweg_refresh(const thalweg_db_t *db,
                               thalweg_error_t **error);

// Interrupts what runs, writes what is in memory into files and closes the folder, which is free for others when all calls of other threads have
// returned. Later calls get `THALWEG_CLOSED`; a second close does nothing. Safe from any thread.
thalweg_code_t thalweg_close(const thalweg_db_t *db,
                             thalweg_error_t **error);

// Closes the database if it is open, and frees it; null is ignored. Once for each database, when no other thread uses it. Results that are not read
// yet are interrupted but stay valid.
void thalweg_db_free(thalweg_db_t *db);

// Writes rows that are in memory and in the log alone into files, so that the next opening is quick. They are safe without it. Safe from any thread.
thalweg_code_t thalweg_flush(const thalweg_db_t *db,
                             thalweg_error_t **error);

// Stops queries of other threads that run, and results that are not read to their end: they get `THALWEG_INTERRUPTED`. Safe from any thread; not
// from a handler of signals.
void thalweg_interrupt(const thalweg_db_t *db);

// Writes line protocol: `measurement,tag=value field=1.5,other=2i 1700000000000000000`, a row a line. All rows are on disk when it returns. The
// timestamps' `precision` is `ns` (also if it is empty), `us`, `ms` or `s`. `written` may be null. Safe from any thread.
thalweg_code_t thalweg_write_lines(const thalweg_db_t *db,
                                   thalweg_str_t database,
                                   thalweg_str_t lines,
                                   thalweg_str_t precision,
                                   thalweg_written_t *written,
                                   thalweg_error_t **error);

// Writes rows of a table that come as columns, all or none of them, but for rows that are wrong by themselves. All rows are on disk when it
// returns. At most 4,194,304 rows at once. `written` may be null. Safe from any thread.
thalweg_code_t thalweg_write_columns(const thalweg_db_t *db,
                                     thalweg_str_t database,
                                     const thalweg_columns_t *columns,
                                     thalweg_written_t *written,
                                     thalweg_error_t **error);

// Writes the rows of a stream of Arrow's record batches to a table. The stream is read to its end and released, also on failure; rows before the
// error are written.
//
// `time` names the column of times (empty: `time` or `timestamp`), which has timestamps, dates, or integers of nanoseconds. The columns in `tags`
// become tags and all others fields; with `tags` null columns are what the table has them for, and new ones of texts become tags.
//
// `written` may be null. Safe from any thread, as far as the stream is.
thalweg_code_t thalweg_write_arrow(const thalweg_db_t *db,
                                   thalweg_str_t database,
                                   thalweg_str_t table,
                                   thalweg_str_t time,
                                   const thalweg_str_t *tags,
                                   size_t tags_len,
                                   struct ArrowArrayStream *stream,
                                   thalweg_written_t *written,
                                   thalweg_error_t **error);

// Deletes the samples from `start_ns` to `end_ns`, both included, of all series that a selector as `cpu_usage{host="a"}` selects. They are gone
// when it returns. `series` may be null; it gets the number of series. Safe from any thread.
thalweg_code_t thalweg_delete(const thalweg_db_t *db,
                              thalweg_str_t database,
                              thalweg_str_t selector,
                              int64_t start_ns,
                              int64_t end_ns,
                              uint64_t *series,
                              thalweg_error_t **error);

// Writes values of one epoch of a regular database (`CREATE DATABASE … WITH (interval = '5m')` by `thalweg_sql`): `len` names with a value each, of all
// series or of some. Names that are not valid become so. They are on disk when it returns; what is there of other series stays, and several writes
// complete an epoch. `written` may be null. Safe from any thread.
thalweg_code_t thalweg_epoch_write_f64(const thalweg_db_t *db,
                                       thalweg_str_t database,
                                       int64_t time_ns,
                                       const thalweg_str_t *names,
                                       const double *values,
                                       size_t len,
                                       thalweg_epoch_written_t *written,
                                       thalweg_error_t **error);

// As `thalweg_epoch_write_f64`, of integers.
thalweg_code_t thalweg_epoch_write_i64(const thalweg_db_t *db,
                                       thalweg_str_t database,
                                       int64_t time_ns,
                                       const thalweg_str_t *names,
                                       const int64_t *values,
                                       size_t len,
                                       thalweg_epoch_written_t *written,
                                       thalweg_error_t **error);

// Ends `len` names before the epoch of a time: their past stays, and their indexes are free for others. A name that is written again gets a new one.
// `removed` may be null; it gets how many names ended. Safe from any thread.
thalweg_code_t thalweg_epoch_remove(const thalweg_db_t *db,
                                    thalweg_str_t database,
                                    int64_t time_ns,
                                    const thalweg_str_t *names,
                                    size_t len,
                                    uint64_t *removed,
                                    thalweg_error_t **error);

// Reads a series of a regular database by its name, in all epochs from `start_ns` to `end_ns` in which something was written for any series: the first
// `capacity` of them, `len` gets how many there are. Each has a `thalweg_status_t`; where there is no value, the value is NaN. Values of its old and new
// indexes come under the name, with `THALWEG_UNDEFINED` between. Arrays that are null are not written; with a `capacity` of 0 it only counts.
//
// A name that never was gets `THALWEG_NOT_FOUND`. Safe from any thread.
thalweg_code_t thalweg_epoch_range_f64(const thalweg_db_t *db,
                                       thalweg_str_t database,
                                       thalweg_str_t name,
                                       int64_t start_ns,
                                       int64_t end_ns,
                                       int64_t *times_ns,
                                       double *values,
                                       uint8_t *statuses,
                                       size_t capacity,
                                       size_t *len,
                                       thalweg_error_t **error);

// As `thalweg_epoch_range_f64`, for a database of integers; where there is no value, it is 0.
thalweg_code_t thalweg_epoch_range_i64(const thalweg_db_t *db,
                                       thalweg_str_t database,
                                       thalweg_str_t name,
                                       int64_t start_ns,
                                       int64_t end_ns,
                                       int64_t *times_ns,
                                       int64_t *values,
                                       uint8_t *statuses,
                                       size_t capacity,
                                       size_t *len,
                                       thalweg_error_t **error);

// Reads what all series of a regular database that are valid in the epoch of a time have in it: first those with a value, then those without.
//
// Safe from any thread. Free the result by `thalweg_epoch_free`.
thalweg_code_t thalweg_epoch_read(const thalweg_db_t *db,
                                  thalweg_str_t database,
                                  int64_t time_ns,
                                  thalweg_epoch_t **epoch,
                                  thalweg_error_t **error);

// How many series there are; 0 for null. Safe from any thread.
size_t thalweg_epoch_len(const thalweg_epoch_t *epoch);

// The time of the epoch; 0 for null. Safe from any thread.
int64_t thalweg_epoch_time_ns(const thalweg_epoch_t *epoch);

// What one of the series has; beyond the last one its name is empty. Safe from any thread.
thalweg_epoch_value_t thalweg_epoch_get(const thalweg_epoch_t *epoch, size_t place);

// Frees an epoch; null is ignored. Once, when no other thread reads it.
void thalweg_epoch_free(thalweg_epoch_t *epoch);

// Finds when names of a regular database are valid, by name and time: those that match a regular expression as a whole, all if it is empty.
//
// Safe from any thread. Free the result by `thalweg_validities_free`.
thalweg_code_t thalweg_validities_find(const thalweg_db_t *db,
                                       thalweg_str_t database,
                                       thalweg_str_t pattern,
                                       thalweg_validities_t **validities,
                                       thalweg_error_t **error);

// How many there are; 0 for null. Safe from any thread.
size_t thalweg_validities_len(const thalweg_validities_t *validities);

// One of them; beyond the last one its name is empty. Safe from any thread.
thalweg_validity_t thalweg_validities_get(const thalweg_validities_t *validities, size_t place);

// Frees them; null is ignored. Once, when no other thread reads them.
void thalweg_validities_free(thalweg_validities_t *validities);

// Finds the series that a selector as `cpu_usage{host=~"a|b"}` selects and that may have samples from `start_ns` to `end_ns`, both included, in order
// of their labels: at most `limit`, 0 for all. A series is a field of a table with its tags; its name is the table's and the field's with `_` between,
// or the table's alone where the field is called `value`.
//
// Safe from any thread. Free the result by `thalweg_series_free`.
thalweg_code_t thalweg_series_find(const thalweg_db_t *db,
                                   thalweg_str_t database,
                                   thalweg_str_t selector,
                                   int64_t start_ns,
                                   int64_t end_ns,
                                   size_t limit,
                                   thalweg_series_t **series,
                                   thalweg_error_t **error);

// How many series there are; 0 for null. Safe from any thread.
size_t thalweg_series_len(const thalweg_series_t *series);

// The selector of a series, as `{__name__="cpu_usage", host="a"}`, which `thalweg_range_f64` takes; empty beyond the last one. Safe from any thread.
thalweg_str_t thalweg_series_selector(const thalweg_series_t *series,
                                      size_t index);

// The value of a label of a series, `__name__` for its name; empty if it has none. It lives as long as `series`. Safe from any thread.
thalweg_str_t thalweg_series_label(const thalweg_series_t *series,
                                   size_t index,
                                   thalweg_str_t name);

// Frees series; null is ignored. Once, when no other thread reads them.
void thalweg_series_free(thalweg_series_t *series);

// Reads the samples of one series from `start_ns` to `end_ns`, both included, in order of time, as floats: `times_ns` and `values` get the first
// `capacity` of them, `len` how many there are. With `times_ns` or `values` null, or a `capacity` of 0, it only counts. Integers and booleans come
// as floats; texts are refused.
//
// The selector names one series: as `thalweg_series_selector` gives it, or `cpu_usage{host="a"}` where no other series has these labels and more.
// Without such a series the call gets `THALWEG_NOT_FOUND`. Safe from any thread.
thalweg_code_t thalweg_range_f64(const thalweg_db_t *db,
                                 thalweg_str_t database,
                                 thalweg_str_t selector,
                                 int64_t start_ns,
                                 int64_t end_ns,
                                 int64_t *times_ns,
                                 double *values,
                                 size_t capacity,
                                 size_t *len,
                                 thalweg_error_t **error);

// As `thalweg_range_f64`, for a series of integers; others are refused.
thalweg_code_t thalweg_range_i64(const thalweg_db_t *db,
                                 thalweg_str_t database,
                                 thalweg_str_t selector,
                                 int64_t start_ns,
                                 int64_t end_ns,
                                 int64_t *times_ns,
                                 int64_t *values,
                                 size_t capacity,
                                 size_t *len,
                                 thalweg_error_t **error);

// Runs statements of SQL; the result is the last one's table. A statement that gives none, as an INSERT, gives its tag in the column `status`.
// `parameters` is a JSON array of the values of `$1`, `$2` …; empty: there are none.
//
// `stream` is written over, not released before; the caller releases it. It may be read on any thread, one at a time, also after the database
// is freed. Remarks on the result stand in the schema's metadata as `thalweg.warnings`. Safe from any thread.
thalweg_code_t thalweg_sql(const thalweg_db_t *db,
                           thalweg_str_t database,
                           thalweg_str_t text,
                           thalweg_str_t parameters,
                           struct ArrowArrayStream *stream,
                           thalweg_error_t **error);

// Evaluates PromQL at one moment: a row for each series, with `time`, a column for each label, and `value` (or `histogram`). `stream` as for
// `thalweg_sql`. Safe from any thread.
thalweg_code_t thalweg_promql(const thalweg_db_t *db,
                              thalweg_str_t database,
                              thalweg_str_t text,
                              int64_t time_ms,
                              struct ArrowArrayStream *stream,
                              thalweg_error_t **error);

// Evaluates PromQL at regular moments, from `start_ms` to `end_ms` every `step_ms`: a row for each series and moment. `stream` as for `thalweg_sql`.
// Safe from any thread.
thalweg_code_t thalweg_promql_range(const thalweg_db_t *db,
                                    thalweg_str_t database,
                                    thalweg_str_t text,
                                    int64_t start_ms,
                                    int64_t end_ms,
                                    int64_t step_ms,
                                    struct ArrowArrayStream *stream,
                                    thalweg_error_t **error);

// Runs statements of InfluxQL. The result is one table of all series: `iox::measurement`, `time`, tags and the other columns, as InfluxDB 3 has
// it. `stream` as for `thalweg_sql`. Safe from any thread.
thalweg_code_t thalweg_influxql(const thalweg_db_t *db,
                                thalweg_str_t database,
                                thalweg_str_t text,
                                struct ArrowArrayStream *stream,
                                thalweg_error_t **error);

// Makes a file of RRDtool of the one series that `selector` selects: its samples are the readings of the data source. The definition is what
// `rrdtool create` takes, `definition_len` texts: one as `"DS:load:GAUGE:120:0:U"`, and the archives, as `"RRA:AVERAGE:0.5:1:1440"`; a step has
// `step_s` seconds. The file is made at `path`, where there must be none; with the ending `.xml` it is what `rrdtool restore` takes.
//
// Safe from any thread.
thalweg_code_t thalweg_rrd_export(const thalweg_db_t *db,
                                  thalweg_str_t database,
                                  thalweg_str_t selector,
                                  uint64_t step_s,
                                  const thalweg_str_t *definition,
                                  size_t definition_len,
                                  thalweg_str_t path,
                                  thalweg_error_t **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* THALWEG_H */

/* The text up to a zero, as of a literal. */
static inline thalweg_str_t thalweg_str(const char *text) {
  thalweg_str_t made = {text, text == NULL ? 0 : strlen(text)};
  return made;
}
