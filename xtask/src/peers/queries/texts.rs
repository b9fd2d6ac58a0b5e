//! What the Time Series Benchmark Suite's clients ask of its `cpu-only` data: kinds of queries, their texts in each language, and the
//! requests that carry them.

use super::super::Peer;
use super::super::influxql::data::{Random, START_S};

const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];
const HOUR_S: u64 = 3600;
/// The data is that of one month, so that days need no calendar.
pub(super) const HOURS_MAX: u64 = 30 * 24;

/// A language, with the clients of the server whose own it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Influxql,
    Promql,
    Sql,
}

impl Language {
    pub(super) const ALL: [Self; 3] = [Self::Influxql, Self::Promql, Self::Sql];

    /// The server that it is compared with.
    pub(super) fn peer(self) -> Peer {
        match self {
            Self::Influxql => Peer::Influxdb,
            Self::Promql => Peer::VictoriaMetrics,
            Self::Sql => Peer::Questdb,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Influxql => "InfluxQL",
            Self::Promql => "PromQL",
            Self::Sql => "SQL",
        }
    }
}

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Maxima by minute of some hosts.
    MinuteMaxima,
    /// Maxima by hour of some hosts.
    HourMaxima,
    /// Means by hour and host.
    HourMeans,
    /// Rows in which a host is busy.
    Busy,
    /// The first five minutes' maxima before a moment.
    FirstMinutes,
    /// Every host's last row.
    Last,
}

/// A kind of query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    form: Form,
    fields: usize,
    /// 0: all.
    hosts: usize,
    hours: u64,
}

const fn kind(name: &'static str, form: Form, fields: usize, hosts: usize, hours: u64) -> Kind {
    Kind { name, form, fields, hosts, hours }
}

/// All of them, as the suite names them: fields, hosts and hours are in the name.
pub(super) const KINDS: [Kind; 16] = [
    kind("single-groupby-1-1-1", Form::MinuteMaxima, 1, 1, 1),
    kind("single-groupby-1-1-12", Form::MinuteMaxima, 1, 1, 12),
    kind("single-groupby-1-8-1", Form::MinuteMaxima, 1, 8, 1),
    kind("single-groupby-5-1-1", Form::MinuteMaxima, 5, 1, 1),
    kind("single-groupby-5-1-12", Form::MinuteMaxima, 5, 1, 12),
    kind("single-groupby-5-8-1", Form::MinuteMaxima, 5, 8, 1),
    kind("cpu-max-all-1", Form::HourMaxima, 10, 1, 8),
    kind("cpu-max-all-8", Form::HourMaxima, 10, 8, 8),
    kind("cpu-max-all-32-24", Form::HourMaxima, 10, 32, 24),
    kind("double-groupby-1", Form::HourMeans, 1, 0, 12),
    kind("double-groupby-5", Form::HourMeans, 5, 0, 12),
    kind("double-groupby-all", Form::HourMeans, 10, 0, 12),
    kind("high-cpu-1", Form::Busy, 10, 1, 12),
    kind("high-cpu-all", Form::Busy, 10, 0, 12),
    kind("groupby-orderby-limit", Form::FirstMinutes, 1, 0, 1),
    kind("lastpoint", Form::Last, 10, 0, 1),
];

/// What differs from query to query of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drawn {
    hosts: Vec<u64>,
    start_s: u64,
    end_s: u64,
}

impl Kind {
    /// Hours that a query covers: half of the data where it is too short for the suite's.
    pub(super) fn hours_in(&self, data_hours: u64) -> u64 {
        if self.hours < data_hours { self.hours } else { (data_hours / 2).max(1) }
    }

    /// The name, with the hours where they are not the suite's.
    pub(super) fn name_in(&self, data_hours: u64) -> String {
        let hours = self.hours_in(data_hours);
        if hours == self.hours { self.name.to_owned() } else { format!("{} over {hours} h", self.name) }
    }

    /// Draws hosts and a range of the data.
    pub(super) fn draw(&self, scale: u64, data_hours: u64, random: &mut Random) -> Drawn {
        let mut hosts = Vec::new();
        while (hosts.len() as u64) < (self.hosts as u64).min(scale) {
            let host = random.below(scale);
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let length_s = self.hours_in(data_hours) * HOUR_S;
        let start_s = START_S + random.below((data_hours * HOUR_S).saturating_sub(length_s));
        Drawn { hosts, start_s, end_s: start_s + length_s }
    }

    /// The text in a language, if the suite has one.
    pub(super) fn text(&self, language: Language, drawn: &Drawn) -> Option<String> {
        match language {
            Language::Influxql => Some(self.influxql(drawn)),
            Language::Promql => self.promql(drawn),
            Language::Sql => self.sql(drawn),
        }
    }

    fn fields(&self) -> &[&'static str] {
        FIELDS.get(..self.fields).unwrap_or(&FIELDS)
    }

    fn influxql(&self, drawn: &Drawn) -> String {
        let (start, end) = (moment(drawn.start_s), moment(drawn.end_s));
        let range = format!("time >= '{start}' and time < '{end}'");
        let called = |function: &str, between: &str| {
            let calls: Vec<String> = self.fields().iter().map(|field| format!("{function}({field})")).collect();
            calls.join(between)
        };
        let hosts: Vec<String> = drawn.hosts.iter().map(|host| format!("hostname = 'host_{host}'")).collect();
        let hosts = hosts.join(" or ");
        match self.form {
            Form::MinuteMaxima => {
                format!("SELECT {} from cpu where ({hosts}) and {range} group by time(1m)", called("max", ", "))
            }
            Form::HourMaxima => {
                format!("SELECT {} from cpu where ({hosts}) and {range} group by time(1h)", called("max", ","))
            }
            Form::HourMeans => {
                format!("SELECT {} from cpu where {range} group by time(1h),hostname", called("mean", ", "))
            }
            Form::Busy => {
                let hosts = if hosts.is_empty() { String::new() } else { format!("and ({hosts})") };
                format!("SELECT * from cpu where usage_user > 90.0 {hosts} and {range}")
            }
            Form::FirstMinutes => {
                format!("SELECT max(usage_user) from cpu WHERE time < '{end}' group by time(1m) limit 5")
            }
            Form::Last => "SELECT * from cpu group by \"hostname\" order by time desc limit 1".to_owned(),
        }
    }

    fn promql(&self, drawn: &Drawn) -> Option<String> {
        let names: Vec<String> = drawn.hosts.iter().map(|host| format!("host_{host}")).collect();
        let hosts = match names.as_slice() {
            [] => String::new(),
            [one] => format!("hostname='{one}'"),
            _ => format!("hostname=~'{}'", names.join("|")),
        };
        let selector = match self.fields() {
            [field] => format!("cpu_{field}{{{hosts}}}"),
            fields => {
                let between = if hosts.is_empty() { "" } else { ", " };
                format!("{{__name__=~'cpu_({})'{between}{hosts}}}", fields.join("|"))
            }
        };
        match self.form {
            Form::MinuteMaxima => Some(format!("max(max_over_time({selector}[1m])) by (__name__)")),
            Form::HourMaxima => Some(format!("max(max_over_time({selector}[1h])) by (__name__)")),
            Form::HourMeans => Some(format!("avg(avg_over_time({selector}[1h])) by (__name__, hostname)")),
            Form::Busy | Form::FirstMinutes | Form::Last => None,
        }
    }

    fn sql(&self, drawn: &Drawn) -> Option<String> {
        let (start, end) = (moment(drawn.start_s), moment(drawn.end_s));
        let called = |function: &str| {
            let calls = self.fields().iter().map(|field| format!("{function}({field}) AS {function}_{field}"));
            calls.collect::<Vec<_>>().join(", ")
        };
        let hosts: Vec<String> = drawn.hosts.iter().map(|host| format!("'host_{host}'")).collect();
        let hosts = hosts.join(", ");
        match self.form {
            Form::MinuteMaxima => Some(format!(
                "\n\t\tSELECT timestamp,\n\t\t\t{}\n\t\tFROM cpu\n\t\tWHERE hostname IN ({hosts})\n\t\t  AND timestamp >= '{start}'\n\
                 \t\t  AND timestamp < '{end}'\n\t\tSAMPLE BY 1m",
                called("max")
            )),
            Form::HourMeans => Some(format!(
                "\n\t\tSELECT timestamp, hostname,\n\t\t\t{}\n\t\tFROM cpu\n\t\tWHERE timestamp >= '{start}'\n\
                 \t\t  AND timestamp < '{end}'\n\t\tSAMPLE BY 1h\n\t\tGROUP BY timestamp, hostname",
                called("avg")
            )),
            Form::Busy => {
                let hosts = if hosts.is_empty() { hosts } else { format!("\n\t\t       AND hostname IN ({hosts})") };
                Some(format!(
                    "\n\t\t      SELECT *\n\t\t      FROM cpu\n\t\t      WHERE usage_user > 90.0{hosts}\n\
                     \t\t       AND timestamp >= '{start}'\n\t\t       AND timestamp < '{end}'"
                ))
            }
            Form::FirstMinutes => Some(format!(
                "\n\t\tSELECT timestamp AS minute,\n\t\t\tmax(usage_user)\n\t\tFROM cpu\n\t\tWHERE timestamp < '{end}'\n\
                 \t\tSAMPLE BY 1m\n\t\tLIMIT 5"
            )),
            Form::Last => Some("SELECT * FROM cpu latest by hostname".to_owned()),
            Form::HourMaxima => None,
        }
    }
}

/// A moment of the data as the clients spell it.
fn moment(unix_s: u64) -> String {
    let since_s = unix_s.saturating_sub(START_S);
    let (day, hour, minute, second) = (since_s / 86_400 + 1, since_s / HOUR_S % 24, since_s / 60 % 60, since_s % 60);
    format!("2016-01-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A request as the suite's client sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) is_post: bool,
    pub(super) path: &'static str,
    pub(super) parameters: Vec<(&'static str, String)>,
}

impl Kind {
    /// The request for a server, if the suite can ask this in the language.
    pub(super) fn request(&self, language: Language, server: Peer, drawn: &Drawn) -> Option<Request> {
        let text = self.text(language, drawn)?;
        let is_ours = server == Peer::Thalweg;
        let (path, mut parameters) = match language {
            Language::Influxql => {
                // What is written without a name is in the database `default`.
                let database = server.database().unwrap_or("default").to_owned();
                ("/query", vec![("db", database), ("q", text)])
            }
            Language::Promql => {
                let step_s = if self.form == Form::MinuteMaxima { 60 } else { HOUR_S };
                let [start, end, step] = [drawn.start_s, drawn.end_s, step_s].map(|number| number.to_string());
                ("/api/v1/query_range", vec![("end", end), ("query", text), ("start", start), ("step", step)])
            }
            Language::Sql => {
                // The server that the suite was written for took this line; now it refuses it, and means the same without.
                let text = if is_ours { text } else { text.replace("\n\t\tGROUP BY timestamp, hostname", "") };
                ("/exec", vec![("count", "false".to_owned()), ("query", text)])
            }
        };
        if is_ours && language == Language::Promql {
            // MetricsQL keeps names where the suite groups by them.
            parameters.push(("delayed_name_removal", "true".to_owned()));
        }
        Some(Request { is_post: language == Language::Influxql, path, parameters })
    }
}

impl Request {
    /// The same without answers that were kept.
    pub(super) fn computed(&self) -> Self {
        let mut request = self.clone();
        request.parameters.push(("nocache", "1".to_owned()));
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from the suite's client of InfluxDB, hosts and ranges included.
    const INFLUXQL: &str = include_str!("../../../../crates/server/tests/http/tsbs_influx.txt");
    /// What `thalweg bench query` asks.
    const PROMQL: &str = include_str!("../../../../crates/bench/src/queries.txt");

    fn recorded(kind: &Kind) -> Drawn {
        const HOSTS: [u64; 32] = [
            49, 3, 35, 39, 75, 15, 21, 11, 87, 2, 82, 48, 1, 37, 72, 18, 54, 94, 57, 13, 26, 83, 8, 30, 36, 14, 34, 65,
            69, 58, 74, 10,
        ];
        // 2016-01-01, 02 or 03, 18:16:22.
        let days = match (kind.form, kind.hours) {
            (Form::HourMaxima, _) => 0,
            (_, 12) => 1,
            _ => 2,
        };
        let start_s = START_S + days * 86_400 + 18 * HOUR_S + 16 * 60 + 22;
        Drawn { hosts: HOSTS[..kind.hosts].to_vec(), start_s, end_s: start_s + kind.hours * HOUR_S }
    }

    #[test]
    fn texts_are_those_of_the_suite() {
        for kind in KINDS {
            let text = kind.text(Language::Influxql, &recorded(&kind)).unwrap();
            assert!(INFLUXQL.contains(&format!("# influx {}\n{text}\n", kind.name)), "{text}");
            let line = PROMQL.lines().find(|line| line.split(' ').next() == Some(kind.name));
            let promql = kind.text(Language::Promql, &Drawn { hosts: vec![7], ..recorded(&kind) });
            let promql = if kind.hosts == 0 { kind.text(Language::Promql, &recorded(&kind)) } else { promql };
            match (line, promql) {
                (Some(line), Some(text)) => {
                    assert!(line.replace("{hosts}", "hostname='host_7'").ends_with(&format!(" {text}")), "{text}");
                }
                (line, text) => assert_eq!((line, text), (None, None), "{}", kind.name),
            }
        }
    }

    #[test]
    fn what_is_drawn_lies_in_the_data() {
        let mut random = Random::new(1);
        for kind in KINDS {
            for hours in [1, 2, 6, 72] {
                let Drawn { hosts, start_s, end_s } = kind.draw(9, hours, &mut random);
                assert_eq!(hosts.len(), kind.hosts.min(9), "{}", kind.name);
                assert!(start_s >= START_S && end_s <= START_S + hours * HOUR_S, "{} {hours}", kind.name);
            }
        }
        let [many, few] = [KINDS[11].name_in(72), KINDS[11].name_in(6)];
        assert_eq!((many.as_str(), few.as_str()), ("double-groupby-all", "double-groupby-all over 3 h"));
        assert_eq!(moment(START_S + 86_400 + 3 * HOUR_S + 61), "2016-01-02T03:01:01Z");
    }

    #[test]
    fn requests_are_those_of_the_clients() {
        let drawn = recorded(&KINDS[0]);
        let request = |language, server| KINDS[0].request(language, server, &drawn).unwrap();
        let promql = request(Language::Promql, Peer::Thalweg);
        let names: Vec<&str> = promql.parameters.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["end", "query", "start", "step", "delayed_name_removal"]);
        assert!(request(Language::Influxql, Peer::Influxdb).is_post && !promql.is_post);
        assert_eq!(promql.computed().parameters.last(), Some(&("nocache", "1".to_owned())));
        let means = |server| KINDS[9].request(Language::Sql, server, &drawn).unwrap().parameters[1].1.clone();
        assert!(means(Peer::Thalweg).contains("GROUP BY") && !means(Peer::Questdb).contains("GROUP BY"));
        assert!(KINDS[6].request(Language::Sql, Peer::Questdb, &drawn).is_none());
    }
}
