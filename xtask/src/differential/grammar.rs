//! Random expressions that are valid: right kinds of arguments, modifiers where they may be.

use super::Query;
use super::data::Chance;

const SELECTORS: [&str; 14] = [
    "g",
    "c_total",
    "h",
    "mixed",
    "f",
    "b_bucket",
    "{\"gäuge.utf8\"}",
    "g{a=\"1\"}",
    "c_total{a!=\"1\"}",
    "h{b=~\"x|y\"}",
    "{__name__=~\"g|f\"}",
    "{__name__=~\"c.*\",\"läbel\"=\"ü\"}",
    "f{b=\"\"}",
    "nothing",
];
const RANGES: [&str; 7] = ["15s", "30s", "1m", "1m7s", "2m", "5m", "20s"];
const WINDOWS: [&str; 21] = [
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "changes",
    "resets",
    "sum_over_time",
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "count_over_time",
    "last_over_time",
    "present_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "deriv",
    "first_over_time",
    "mad_over_time",
    "ts_of_max_over_time",
    "absent_over_time",
];
const MAPS: [&str; 15] = [
    "abs",
    "ceil",
    "floor",
    "sgn",
    "sqrt",
    "exp",
    "histogram_count",
    "histogram_sum",
    "histogram_avg",
    "sort",
    "histogram_stddev",
    "timestamp",
    "absent",
    "sort_desc",
    "minute",
];
const AGGREGATIONS: [&str; 8] = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"];
const LABELS: [&str; 5] = ["a", "b", "\"läbel\"", "__name__", "missing"];
const OPERATORS: [&str; 13] = ["+", "-", "*", "/", "%", "^", "atan2", "==", "!=", ">", "<=", "> bool", "== bool"];
const NUMBERS: [&str; 9] = ["0", "1", "2.5", "-3", "1e3", "NaN", "Inf", "0x10", "0.5"];

/// Makes queries.
pub(crate) struct Grammar {
    chance: Chance,
}

impl Grammar {
    pub(crate) fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed) }
    }

    /// A query over data from 0 to an end.
    pub(crate) fn query(&mut self, end_ms: i64) -> Query {
        let depth = 1 + self.chance.below(3);
        let is_scalar = self.chance.is(5);
        let text = if is_scalar { self.scalar(depth) } else { self.vector(depth) };
        let moment = |chance: &mut Chance| chance.below(end_ms as u64 / 1000) as i64 * 1000;
        let start_ms = moment(&mut self.chance);
        if self.chance.is(40) {
            return Query { text, start_ms, end_ms: None, step_ms: 0 };
        }
        let step_ms = [5_000, 15_000, 37_000, 60_000, 120_500][self.chance.below(5) as usize];
        let end_ms = start_ms + step_ms * self.chance.below(12) as i64;
        Query { text, start_ms, end_ms: Some(end_ms), step_ms }
    }

    fn shift(&mut self) -> String {
        let offset = if self.chance.is(15) {
            let sign = if self.chance.is(30) { "-" } else { "" };
            format!(" offset {sign}{}", self.chance.one_of(&RANGES))
        } else {
            String::new()
        };
        match self.chance.below(20) {
            0 => format!(" @ {}{offset}", self.chance.below(900)),
            1 => format!(" @ start(){offset}"),
            2 => format!(" @ end(){offset}"),
            _ => offset,
        }
    }

    fn selector(&mut self) -> String {
        self.chance.one_of(&SELECTORS).to_owned() + &self.shift()
    }

    fn range(&mut self, depth: u64) -> String {
        let range = self.chance.one_of(&RANGES);
        if depth > 0 && self.chance.is(25) {
            let step = if self.chance.is(50) { self.chance.one_of(&["10s", "15s", "1m"]) } else { "" };
            return format!("({})[{range}:{step}]{}", self.vector(depth - 1), self.shift());
        }
        format!("{}[{range}]{}", self.chance.one_of(&SELECTORS), self.shift())
    }

    fn scalar(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self.chance.one_of(&NUMBERS).to_owned();
        }
        match self.chance.below(5) {
            0 => format!("scalar({})", self.vector(depth - 1)),
            1 => "time()".to_owned(),
            2 => format!("({} {} {})", self.scalar(depth - 1), self.chance.one_of(&OPERATORS[..7]), self.scalar(0)),
            _ => self.chance.one_of(&NUMBERS).to_owned(),
        }
    }

    fn labels(&mut self) -> String {
        let count = self.chance.below(3);
        let mut chosen: Vec<&str> = (0..count).map(|_| self.chance.one_of(&LABELS)).collect();
        chosen.dedup();
        chosen.join(", ")
    }

    fn grouping(&mut self) -> String {
        match self.chance.below(3) {
            0 => String::new(),
            1 => format!(" by ({})", self.labels()),
            _ => format!(" without ({})", self.labels()),
        }
    }

    fn vector(&mut self, depth: u64) -> String {
        if depth == 0 {
            return self.selector();
        }
        let inner = depth - 1;
        match self.chance.below(16) {
            0 => self.selector(),
            1..=4 => format!("{}({})", self.chance.one_of(&WINDOWS), self.range(inner)),
            5..=7 => {
                format!("{}{} ({})", self.chance.one_of(&AGGREGATIONS), self.grouping(), self.vector(inner))
            }
            8 => format!("{}({})", self.chance.one_of(&MAPS), self.vector(inner)),
            9 => self.vectors(inner),
            10 => {
                let operator = self.chance.one_of(&OPERATORS);
                format!("(({}) {operator} {})", self.vector(inner), self.scalar(inner))
            }
            11 => format!("quantile_over_time({}, {})", self.scalar(0), self.range(inner)),
            12 => {
                let name = self.chance.one_of(&["topk", "bottomk", "quantile", "limitk"]);
                format!("{name}{} (2, {})", self.grouping(), self.vector(inner))
            }
            13 => {
                let quantile = self.chance.one_of(&["0.5", "0.9", "0", "1", "2"]);
                let input = self.chance.one_of(&["h", "rate(h[2m])", "b_bucket", "rate(b_bucket[1m])", "mixed"]);
                format!("histogram_quantile({quantile}, {input})")
            }
            14 => format!("label_replace({}, \"c\", \"$1-\", \"a\", \"(.*)\")", self.vector(inner)),
            _ => format!("clamp({}, {}, {})", self.vector(inner), self.scalar(0), self.scalar(0)),
        }
    }

    /// An operator between vectors.
    fn vectors(&mut self, depth: u64) -> String {
        let (left, right) = (self.vector(depth), self.vector(depth));
        if self.chance.is(30) {
            let operator = self.chance.one_of(&["and", "or", "unless"]);
            let matching = if self.chance.is(50) { format!(" on ({})", self.labels()) } else { String::new() };
            return format!("(({left}) {operator}{matching} ({right}))");
        }
        let operator = self.chance.one_of(&OPERATORS);
        let matching = match self.chance.below(4) {
            0 => format!(" on ({})", self.labels()),
            1 => format!(" ignoring ({})", self.labels()),
            2 => " on (a, b) group_left ()".to_owned(),
            _ => String::new(),
        };
        format!("(({left}) {operator}{matching} ({right}))")
    }
}
