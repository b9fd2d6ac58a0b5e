//! The targets, and what each begins with.

/// Where seeds come from, beside those of `fuzz/seeds/NAME` and the lines of `fuzz/seeds/NAME.txt`.
#[derive(Debug)]
pub(super) enum Seeds {
    /// Texts in sources, above all in tests.
    Literals(&'static [&'static str]),
    /// The files of a folder, and of those in it, without their first bytes.
    Files { folder: &'static str, extension: &'static str, skip: usize },
    /// The lines of a file that begin so, without that.
    Lines { file: &'static str, prefix: &'static str },
    /// What is asked in tests that have `----` between question and answer.
    Questions { folder: &'static str },
    /// The records of logs.
    Records { folder: &'static str },
    /// Index segments.
    Segments { folder: &'static str },
}

/// A target.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: &'static str,
    /// For whoever looks for one.
    pub(super) reads: &'static str,
    /// Bytes of an input.
    pub(super) bytes_max: u64,
    pub(super) seeds: &'static [Seeds],
    /// Sources whose texts are its language's words.
    pub(super) words: &'static [&'static str],
}

const GOLDEN: &str = "crates/store/tests/golden";
const LINES: Seeds = Seeds::Lines { file: "crates/server/tests/http/tsbs_influx.txt", prefix: "" };
const PROMQL: [Seeds; 4] = [
    Seeds::Lines { file: "crates/promql/tests/cases/functions.test", prefix: "eval instant at 0 " },
    Seeds::Lines { file: "crates/promql/tests/cases/selectors.test", prefix: "eval instant at 0 " },
    Seeds::Lines { file: "crates/promql/tests/cases/spelling.test", prefix: "eval instant at 0 " },
    Seeds::Literals(&["crates/promql/tests/hostile.rs", "crates/promql/src/syntax", "crates/db/tests/results.rs"]),
];
const PROMQL_WORDS: &[&str] = &["crates/promql/src/syntax"];
const SQL: [Seeds; 2] =
    [Seeds::Questions { folder: "crates/sql/tests/statements" }, Seeds::Literals(&["crates/sql/src/syntax/parse.rs"])];
const SQL_WORDS: &[&str] =
    &["crates/sql/src/expression", "crates/sql/src/syntax/parse.rs", "crates/sql/src/syntax/settings.rs"];
const INFLUXQL: [Seeds; 1] = [Seeds::Lines { file: "crates/influxql/tests/statements/cases.txt", prefix: "> " }];
const INFLUXQL_WORDS: &[&str] = &["crates/influxql/src/syntax", "crates/influxql/src/functions"];
const FLUX: [Seeds; 1] = [Seeds::Lines { file: "crates/flux/tests/pipelines/cases.txt", prefix: "" }];
const FLUX_WORDS: &[&str] = &["crates/flux/src"];
const PLAN: [Seeds; 1] = [Seeds::Literals(&["crates/query/src/plan/sexpr/tests.rs", "crates/db/tests/plan.rs"])];
const PLAN_WORDS: &[&str] = &["crates/query/src/plan/sexpr"];

/// One that reads bytes.
const fn of_bytes(name: &'static str, reads: &'static str, bytes_max: u64, seeds: &'static [Seeds]) -> Target {
    Target { name, reads, bytes_max, seeds, words: &[] }
}

/// One that reads a language.
const fn of_text(
    name: &'static str,
    reads: &'static str,
    seeds: &'static [Seeds],
    words: &'static [&'static str],
) -> Target {
    Target { name, reads, bytes_max: 2048, seeds, words }
}

/// All of them.
pub(super) const TARGETS: &[Target] = &[
    of_text("line_protocol", "InfluxDB's line protocol", &[LINES, Seeds::Literals(&["crates/ingest/src/line"])], &[]),
    of_text(
        "exposition",
        "Prometheus's texts",
        &[Seeds::Literals(&["crates/ingest/src/exposition"])],
        &["crates/ingest/src/exposition"],
    ),
    Target {
        bytes_max: 8192,
        ..of_text(
            "prometheus_config",
            "prometheus.yml, answers of DNS and EC2",
            &[
                Seeds::Files { folder: "crates/scrape/tests/configs", extension: "yml", skip: 0 },
                Seeds::Literals(&["crates/scrape/src/config/tests.rs", "crates/scrape/src/discovery/ec2.rs"]),
            ],
            &["crates/scrape/src/config"],
        )
    },
    Target {
        bytes_max: 8192,
        ..of_text(
            "rule_template",
            "templates of alerts, rule files, files of tests",
            &[Seeds::Literals(&["crates/rules/src/template", "crates/rules/src/file.rs"])],
            &["crates/rules/src/template"],
        )
    },
    Target {
        bytes_max: 8192,
        ..of_text(
            "stream_aggregation",
            "VictoriaMetrics's stream aggregation files",
            &[
                Seeds::Literals(&["crates/rules/src/stream_aggregation"]),
                Seeds::Files { folder: "crates/rules/tests/stream_aggregation", extension: "yml", skip: 0 },
            ],
            &["crates/rules/src/stream_aggregation"],
        )
    },
    of_text("graphite", "Graphite's lines", &[Seeds::Literals(&["crates/ingest/src/graphite"])], &[]),
    of_text(
        "opentsdb",
        "OpenTSDB's lines and JSON",
        &[Seeds::Literals(&["crates/ingest/src/opentsdb"])],
        &["crates/ingest/src/opentsdb"],
    ),
    of_bytes("rrd_file", "RRDtool's files and dumps", 4096, &[]),
    of_text(
        "rrd_expression",
        "RRDtool's expressions",
        &[Seeds::Literals(&["crates/rrd/tests/rrdtool.rs"])],
        &["crates/rrd/src/rpn", "crates/rrd/src/xport/statements.rs"],
    ),
    of_text(
        "rrdcached",
        "rrdcached's commands",
        &[Seeds::Literals(&["crates/cli/tests/rrdtool.rs"])],
        &["crates/rrd/src/protocol"],
    ),
    of_text(
        "json_lines",
        "VictoriaMetrics' lines of JSON",
        &[Seeds::Literals(&["crates/ingest/src/json_lines"])],
        &["crates/ingest/src/json_lines"],
    ),
    of_text("csv", "CSV", &[Seeds::Literals(&["crates/ingest/src/csv"])], &["crates/ingest/src/csv"]),
    of_text(
        "otlp_json",
        "OpenTelemetry by JSON",
        &[Seeds::Literals(&["crates/ingest/src/otlp"])],
        &["crates/ingest/src/otlp/json.rs"],
    ),
    of_bytes("otlp", "OpenTelemetry by protobuf", 2048, &[]),
    of_bytes("remote_write", "Prometheus's remote write", 2048, &[]),
    of_bytes("remote_read", "Prometheus's remote read", 2048, &[]),
    of_bytes("encodings", "packed bodies", 4096, &[]),
    of_bytes("wire", "the binary protocol", 4096, &[]),
    of_bytes("postgres", "Postgres's messages", 2048, &[]),
    of_text(
        "access",
        "grants, web.config.yml, accounts and certificates",
        &[Seeds::Literals(&["crates/access/src"])],
        &["crates/access/src/grant.rs", "crates/access/src/web_config.rs"],
    ),
    of_text(
        "oidc",
        "documents and tokens of identity providers",
        &[Seeds::Literals(&["crates/access/src/oidc"])],
        &["crates/access/src/oidc/token.rs", "crates/access/src/oidc/documents.rs"],
    ),
    of_text(
        "redis",
        "Redis's protocol, run",
        &[Seeds::Literals(&["crates/redis/tests/sessions.rs"])],
        &[
            "crates/redis/src/commands/table.rs",
            "crates/redis/src/commands/reader.rs",
            "crates/redis/src/commands/create.rs",
        ],
    ),
    of_bytes("flight", "Arrow Flight's tickets, handles and batches", 4096, &[]),
    of_text(
        "parameters",
        "query strings and forms",
        &[
            Seeds::Literals(&["crates/server/src/http/parameters.rs", "crates/server/tests/http/queries.rs"]),
            Seeds::Literals(&["crates/server/src/http/multipart.rs", "crates/server/tests/http/influxql.rs"]),
        ],
        &["crates/server/src/http/parameters.rs", "crates/server/src/http/influxql.rs"],
    ),
    of_text("promql", "PromQL", &PROMQL, PROMQL_WORDS),
    of_text("promql_run", "PromQL, evaluated", &PROMQL, PROMQL_WORDS),
    of_text("sql", "SQL", &SQL, SQL_WORDS),
    of_text("sql_run", "SQL, run", &SQL, SQL_WORDS),
    of_text("influxql", "InfluxQL", &INFLUXQL, INFLUXQL_WORDS),
    of_text("influxql_run", "InfluxQL, run", &INFLUXQL, INFLUXQL_WORDS),
    of_text("flux_run", "Flux, run", &FLUX, FLUX_WORDS),
    of_text("plan", "plans", &PLAN, PLAN_WORDS),
    of_text("plan_run", "plans, run", &PLAN, PLAN_WORDS),
    of_text(
        "sketches",
        "sketches of quantiles and distinct values",
        &[Seeds::Literals(&["crates/query/tests/sketches.rs"])],
        &[],
    ),
    of_text("matcher", "matchers with regular expressions", &[Seeds::Literals(&["crates/index/src/matcher.rs"])], &[]),
    of_text("copy_text", "rows of COPY as text", &[Seeds::Literals(&["crates/sql/src/copy/text.rs"])], &[]),
    of_bytes("parquet", "Parquet files of COPY", 8192, &[]),
    of_text(
        "cache_protocol",
        "what the result cache is asked",
        &[Seeds::Literals(&["crates/cache/src/server"])],
        &["crates/cache/src/server", "crates/cache/src/formats/json.rs", "crates/cache/src/formats/columns.rs"],
    ),
    of_bytes(
        "cache_slab",
        "slabs of the result cache",
        16384,
        &[Seeds::Files { folder: "crates/cache/tests/golden", extension: "slab", skip: 8 }],
    ),
    of_bytes("columns", "columns of values", 2048, &[]),
    of_bytes("part", "pieces of parts", 8192, &[Seeds::Files { folder: GOLDEN, extension: "part", skip: 16 }]),
    of_bytes("part_file", "parts", 16384, &[Seeds::Files { folder: GOLDEN, extension: "part", skip: 0 }]),
    of_bytes("log_record", "payloads of the log's records", 4096, &[Seeds::Records { folder: GOLDEN }]),
    of_bytes(
        "log_segment",
        "segments of the log",
        16384,
        &[Seeds::Files { folder: GOLDEN, extension: "log", skip: 0 }],
    ),
    of_bytes(
        "segment",
        "index segments",
        8192,
        &[Seeds::Segments { folder: GOLDEN }, Seeds::Segments { folder: "crates/index/tests/golden" }],
    ),
    of_bytes(
        "manifest",
        "manifests",
        4096,
        &[
            Seeds::Files { folder: GOLDEN, extension: "MANIFEST", skip: 0 },
            Seeds::Files { folder: GOLDEN, extension: "MANIFEST", skip: 24 },
        ],
    ),
    of_bytes("epochs", "files of epochs", 8192, &[]),
    of_text("epoch_body", "bodies of epochs", &[Seeds::Literals(&["crates/ingest/src/epoch"])], &[]),
    of_bytes("journal", "the journal's file", 4096, &[]),
    of_bytes("backup", "objects of backups", 4096, &[]),
    of_bytes("producers", "the segment of producers", 2048, &[]),
    of_bytes("container", "directories of databases in one file", 8192, &[]),
    of_bytes("flash_table", "the table of blocks on flash", 2048, &[]),
];
