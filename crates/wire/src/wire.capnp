# Messages of Thalweg's own binary protocol. How they are framed, in which order they are sent and what they mean:
# docs/formats/wire.md. Rust code is made from this file by `cargo xtask capnp`.

@0xb257b345f697d281;

# What a value is. The numbers are those of the database's value types.
enum ValueType {
  f64 @0;
  i64 @1;
  u64 @2;
  bool @3;
  string @4;
  # Native histogram.
  histogram @5;
}

struct Label {
  name @0 :Text;
  value @1 :Text;
}

# Control plane, client to server: registers, and is answered by tokens.
struct ControlRequest {
  # Comes back with the answer.
  id @0 :UInt64;
  # The database; empty for the default one.
  database @1 :Text;
  union {
    # Lone series of floats.
    series @2 :List(Series);
    # Groups of one measurement that have the same members.
    groups @3 :Groups;
  }
  # What the client signs in with; empty where nobody has to.
  token @4 :Text;
}

struct Series {
  # The metric's name; not among the labels.
  metric @0 :Text;
  labels @1 :List(Label);
}

struct Groups {
  measurement @0 :Text;
  members @1 :List(Member);
  groups @2 :List(Group);
}

struct Member {
  field @0 :Text;
  type @1 :ValueType;
  # Of this member alone, beside those of its group; mostly none.
  labels @2 :List(Label);
}

struct Group {
  labels @0 :List(Label);
}

# Control plane, server to client.
struct ControlAnswer {
  # That of the request; 0 where the request could not be read, after which the connection ends.
  id @0 :UInt64;
  # Of the data folder: tokens mean something only together with it.
  incarnation @1 :UInt64;
  union {
    # Nothing was registered, or not all.
    error @2 :Text;
    registered @3 :Registered;
  }
}

struct Registered {
  # In the order of the request.
  tokens @0 :List(UInt64);
  # What blocks of these groups say; 0 and none for lone series.
  measurement @1 :UInt32;
  # One for each member, in the order of the request.
  slots @2 :List(UInt32);
}

# Data plane, client to server.
struct DataRequest {
  union {
    hello @0 :Hello;
    batch @1 :Batch;
  }
}

struct Hello {
  # That of the tokens; 0 if the client has none yet.
  incarnation @0 :UInt64;
  # Who sends, if batches must not be applied twice: a number that nobody else has. 0 for nobody.
  producer @1 :UInt64;
  # What the client signs in with; empty where nobody has to.
  token @2 :Text;
}

# Rows that are written together.
struct Batch {
  # Larger than that of the batch before.
  sequence @0 :UInt64;
  blocks @1 :List(Block);
}

# Rows of groups that have the same members, or of lone series.
struct Block {
  measurement @0 :UInt32;
  # One for each column; none for lone series, which have one column of floats.
  slots @1 :List(UInt32);
  # One for each row, or one for all.
  tokens @2 :List(UInt64);
  # Nanoseconds since the Unix epoch; one for each row, or one for all.
  timestamps @3 :List(Int64);
  columns @4 :List(Column);
}

struct Column {
  # A bit for each row, the lowest of the first byte first, 1 where there is a value. Empty: all rows have one.
  present @0 :Data;
  # One for each row, whatever it is where there is none.
  union {
    f64 @1 :List(Float64);
    i64 @2 :List(Int64);
    u64 @3 :List(UInt64);
    bool @4 :List(Bool);
    string @5 :List(Text);
    histogram @6 :Histograms;
  }
}

# Native histograms, as Prometheus defines them.
struct Histograms {
  # Which buckets there are; many samples share a layout.
  layouts @0 :List(HistogramLayout);
  # One for each row, whatever it is where there is none.
  samples @1 :List(Histogram);
}

struct HistogramLayout {
  # -4 to 8: the bounds of neighbouring buckets differ by the factor 2^(2^-schema). -53: they are customBounds.
  schema @0 :Int8;
  # Observations of at most this magnitude are in the zero bucket.
  zeroThreshold @1 :Float64;
  positiveSpans @2 :List(Span);
  negativeSpans @3 :List(Span);
  # Upper bounds, ascending, without infinity; of schema -53 alone.
  customBounds @4 :List(Float64);
}

# A stretch of neighbouring buckets.
struct Span {
  # Buckets left out since the span before; of the first one the index of its first bucket.
  offset @0 :Int32;
  length @1 :UInt32;
}

struct Histogram {
  # Its place among the layouts.
  layout @0 :UInt32;
  # Since the sample before: 0 nobody knows, 1 a reset, 2 none, 3 a gauge, which has none.
  counterReset @1 :UInt8;
  sum @2 :Float64;
  union {
    integers @3 :IntegerCounts;
    floats @4 :FloatCounts;
  }
}

# Observations: all, in the zero bucket, and in each bucket of the spans alone.
struct IntegerCounts {
  count @0 :UInt64;
  zeroCount @1 :UInt64;
  positive @2 :List(UInt64);
  negative @3 :List(UInt64);
}

struct FloatCounts {
  count @0 :Float64;
  zeroCount @1 :Float64;
  positive @2 :List(Float64);
  negative @3 :List(Float64);
}

# Data plane, server to client.
struct DataAnswer {
  union {
    welcome @0 :Welcome;
    ack @1 :Ack;
    refused @2 :Refused;
  }
}

struct Welcome {
  # Of the data folder.
  incarnation @0 :UInt64;
  # The producer's last batch that was applied.
  lastSequence @1 :UInt64;
  # Whether the producer is remembered; if not, nobody knows what of it was applied.
  knowsProducer @2 :Bool;
  # Bytes of frames with batches that may be sent on this connection in all, so far.
  creditBytes @3 :UInt64;
  # Bytes that a message may have.
  messageBytesMax @4 :UInt32;
}

# All batches up to this one are on disk, but for those among the exceptions.
struct Ack {
  sequence @0 :UInt64;
  # As in the welcome: never less than before.
  creditBytes @1 :UInt64;
  exceptions @2 :List(Exception);
}

struct Exception {
  # Of the batch.
  sequence @0 :UInt64;
  # It was applied earlier, and not again.
  duplicate @1 :Bool;
  # Why nothing of it was written; empty if it was.
  error @2 :Text;
  # Rows of these tokens were left out: their groups are gone, to be registered again.
  staleTokens @3 :List(UInt64);
}

# The last message of a connection.
struct Refused {
  reason @0 :Reason;
  message @1 :Text;
  # Of the data folder.
  incarnation @2 :UInt64;
}

enum Reason {
  # The client broke the protocol: it must not send the same again.
  malformed @0;
  # Tokens are from another data folder: register again.
  incarnation @1;
  # The storage takes nothing now, or the server stops: connect again later and resend.
  unavailable @2;
}
