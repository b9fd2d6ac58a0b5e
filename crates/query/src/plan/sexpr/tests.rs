use super::parse;
use crate::plan::push_down;

/// Texts and what they print as; what is printed must be read as the same again.
const PRINTED: &[(&str, &str)] = &[
    (
        r#"(->> (metric "cpu_usage") (tag "hostname" '("host_0")))"#,
        "(->>\n  (metric \"cpu_usage\")\n  (tag \"hostname\" \"host_0\"))",
    ),
    ("(->> (index 50))", "(->>\n  (index 50))"),
    (
        r#"(->> (metric "x") (range 1464710340000000000 1464720460000000000))"#,
        "(->>\n  (metric \"x\")\n  (range 1464710340000000000 1464720460000000000))",
    ),
    (r#"(->> (metric "x") (groupby 1h max))"#, "(->>\n  (metric \"x\")\n  (groupby 1h max))"),
    (
        r#"(->> (metric "x") (where (and (< #TS 1451621760000000000) (> #V 95))))"#,
        "(->>\n  (metric \"x\")\n  (where (and (< #TS 1451621760000000000) (> #V 95))))",
    ),
    (
        r#"(->> (all) (tag-not "a" '("b" "c\"d")) (tag-match "e" "f.*") (range (- now 90m) now) (groupby 90m '(min (quantile 0.5) mean) (by '("a"))) (fill linear))"#,
        "(->>\n  (tag-not \"a\" '(\"b\" \"c\\\"d\"))\n  (tag-match \"e\" \"f.*\")\n  (range -4400000000000 1000000000000)\n  (groupby 1h30m '(min (quantile 0.5) avg) (by '(\"a\")))\n  (fill 1h30m linear))",
    ),
    (
        r#"(/ (->> (metric "a")) (->> (metric "b")))"#,
        "(->>\n  (join inner\n    (->>\n      (metric \"a\"))\n    (->>\n      (metric \"b\")))\n  (map \"value\" (/ (column \"left\") (column \"right\"))))",
    ),
    (
        r#"(->> (join asof (->> (metric "a")) (->> (metric "b")) (on "host") (within 30s)) (map "x" #left "y" (- #right 1.5)) (order #x desc) (limit 5 2))"#,
        "(->>\n  (join asof\n    (->>\n      (metric \"a\"))\n    (->>\n      (metric \"b\")) (on '(\"host\")) (within 30s))\n  (map \"x\" (column \"left\") \"y\" (- (column \"right\") 1.5))\n  (order (column \"x\") desc)\n  (limit 5 2))",
    ),
    (
        r#"(->> (union (->> (metric "a")) (->> (metric "b"))) (groupby all sum (by '("x" "y"))))"#,
        "(->>\n  (union\n    (->>\n      (metric \"a\"))\n    (->>\n      (metric \"b\")))\n  (groupby all sum (by '(\"x\" \"y\"))))",
    ),
    (
        r#"(similar 10 (->> (metric "a") (range 0 9)) (->> (metric "b") (range 0 3)) (step 1m) (measure dtw 6) (offsets every) (per-series 1) (raw))"#,
        "(->>\n  (similar 10\n    (->>\n      (metric \"a\")\n      (range 0 9))\n    (->>\n      (metric \"b\")\n      (range 0 3))\n    (step 1m) (bins avg) (measure dtw 6) (offsets every) (per-series 1) (raw)))",
    ),
    (
        r#"(->> (motifs 3 1h (->> (metric "a") (range 0 9)) (step 5m) (bins last)) (limit 1))"#,
        "(->>\n  (motifs 3 1h\n    (->>\n      (metric \"a\")\n      (range 0 9))\n    (step 5m) (bins last))\n  (limit 1))",
    ),
    (
        r#"(alike 0.9 (->> (metric "a") (range 0 9)) (step 1h))"#,
        "(->>\n  (alike 0.9\n    (->>\n      (metric \"a\")\n      (range 0 9))\n    (step 1h) (bins avg)))",
    ),
];

/// Plans of tables are written as they are read.
const TABLES: &[(&str, &str)] = &[
    (
        r#"(->> (table "cpu") (tag "host" "a") (groupby 1h '((max "user") (quantile 0.5 "idle") (count #TS)) (offset 90m) (by '("host"))))"#,
        "(->>\n  (table \"cpu\")\n  (tag \"host\" \"a\")\n  (groupby 1h '((max \"user\") (quantile 0.5 \"idle\") (count #TS)) (offset 30m) (by '(\"host\"))))",
    ),
    (
        r#"(->> (rows-of "cpu") (groupby all '((max "user")) (undated) (by '())))"#,
        "(->>\n  (rows-of \"cpu\")\n  (groupby all (max \"user\") (by '()) (undated)))",
    ),
    (
        r#"(->> (rows-of "cpu") (groupby 1h '((nearest_rank 99 "user") (nearest_rank -0.5 "user") (mode "state"))))"#,
        "(->>\n  (rows-of \"cpu\")\n  (groupby 1h '((nearest_rank 99.0 \"user\") (nearest_rank -0.5 \"user\") (mode \"state\"))))",
    ),
    (
        r#"(->> (rows-of "cpu") (groupby 1h '((integral 60s "user") (integral 90m "user"))))"#,
        "(->>\n  (rows-of \"cpu\")\n  (groupby 1h '((integral 1m \"user\") (integral 1h30m \"user\"))))",
    ),
    (
        r#"(->> (rows-of "cpu") (groupby 1h (off_ms #TS) (by '("host"))))"#,
        "(->>\n  (rows-of \"cpu\")\n  (groupby 1h (off_ms #TS) (by '(\"host\"))))",
    ),
    (
        r#"(->> (rows-of "cpu") (map "a b" (if (is_null #user) 0 (>= (compare #user #idle) 0) #user) "c" (coalesce (label "host") "")) (groupby 1h (max "a b")))"#,
        "(->>\n  (rows-of \"cpu\")\n  (map \"a b\" (if (is_null (column \"user\")) 0 (>= (compare (column \"user\") (column \"idle\")) 0) (column \"user\")) \"c\" (coalesce (label \"host\") \"\"))\n  (groupby 1h (max \"a b\")))",
    ),
    (
        r#"(->> (rows-of "cpu") (groupby 1h (max "user") (by '("host"))))"#,
        "(->>\n  (rows-of \"cpu\")\n  (groupby 1h (max \"user\") (by '(\"host\"))))",
    ),
    (
        r#"(->> (rows-of "trades") (as-of (->> (rows-of "quotes") (tag "venue" "v")) (on '("symbol" "name")) (columns '("b" "bid" "a" "ask")) (within 90s) (earlier)) (groupby 1m (max "b")))"#,
        "(->>\n  (rows-of \"trades\")\n  (as-of (->> (rows-of \"quotes\") (tag \"venue\" \"v\")) (on '(\"symbol\" \"name\")) (columns '(\"b\" \"bid\" \"a\" \"ask\")) (earlier) (within 1m30s))\n  (groupby 1m (max \"b\")))",
    ),
    (
        r#"(->> (rows-of "trades") (as-of (->> (rows-of "quotes")) (columns '("b" "bid"))) (as-of (->> (rows-of "rates")) (columns '("r" "rate")) (within 1m)) (limit 1))"#,
        "(->>\n  (rows-of \"trades\")\n  (as-of (->> (rows-of \"quotes\")) (columns '(\"b\" \"bid\")))\n  (as-of (->> (rows-of \"rates\")) (columns '(\"r\" \"rate\")) (within 1m))\n  (limit 1))",
    ),
    (
        r#"(->> (rows-of "trades") (as-of (->> (rows-of "quotes")) (tag-not "v" '("a" "b")) (within 1m) (labels '("v" "venue" "n" "note")) (columns '("at" "venue"))) (limit 1))"#,
        "(->>\n  (rows-of \"trades\")\n  (as-of (->> (rows-of \"quotes\")) (columns '(\"at\" \"venue\")) (labels '(\"v\" \"venue\" \"n\" \"note\")) (within 1m) (tag-not \"v\" '(\"a\" \"b\")))\n  (limit 1))",
    ),
    (
        r#"(->> (rows-of "trades") (as-of (->> (rows-of "quotes"))) (limit 1))"#,
        "(->>\n  (rows-of \"trades\")\n  (as-of (->> (rows-of \"quotes\")))\n  (limit 1))",
    ),
    (
        r#"(->> (table "cpu" '("user" "idle")) (where (> #user 90)) (order #TS desc) (limit 1))"#,
        "(->>\n  (table \"cpu\" '(\"user\" \"idle\"))\n  (where (> (column \"user\") 90))\n  (order #TS desc)\n  (limit 1))",
    ),
];

const NOW_NS: i64 = 1_000_000_000_000;

#[test]
fn texts_are_read_and_printed() {
    for (text, printed) in PRINTED.iter().chain(TABLES) {
        let plan = parse(text, NOW_NS).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(plan.to_string(), *printed, "{text}");
        assert_eq!(parse(printed, 0), Ok(plan), "{text}");
    }
}

#[test]
fn conditions_on_time_become_the_range() {
    let cases = [
        (
            r#"(->> (table "x") (where (> #a 1)) (groupby 1h (max "b")))"#,
            "(->>\n  (table \"x\" '(\"a\" \"b\"))\n  (where (> (column \"a\") 1))\n  (groupby 1h (max \"b\")))",
        ),
        (
            r#"(->> (metric "x") (where (and (< #TS 100) (> #V 95))))"#,
            "(->>\n  (metric \"x\")\n  (range -9223372036854775808 100)\n  (where (> #V 95)))",
        ),
        (
            r#"(->> (rows-of "x") (where (> #c 1)) (as-of (->> (rows-of "y")) (columns '("p" "p" "q" "q"))) (groupby 1h '((max "a") (min "q"))))"#,
            "(->>\n  (rows-of \"x\" '(\"a\" \"c\"))\n  (where (> (column \"c\") 1))\n  (as-of (->> (rows-of \"y\")) (columns '(\"q\" \"q\")))\n  (groupby 1h '((max \"a\") (min \"q\"))))",
        ),
        // New columns that are not grouped are not computed, and what they are made of is read.
        (
            r#"(->> (rows-of "x") (as-of (->> (rows-of "y")) (columns '("p" "p" "q" "q"))) (map "a" (- #q #b) "d" #p) (labelled inner (->> (rows-of "h")) (on '("h" "h")) (labels '("o" "o"))) (groupby 1h (max "a") (by '("o"))))"#,
            "(->>\n  (rows-of \"x\" '(\"b\"))\n  (as-of (->> (rows-of \"y\")) (columns '(\"q\" \"q\")))\n  (map \"a\" (- (column \"q\") (column \"b\")))\n  (labelled inner (->> (rows-of \"h\")) (on '(\"h\" \"h\")) (labels '(\"o\" \"o\")))\n  (groupby 1h (max \"a\") (by '(\"o\"))))",
        ),
        // Of a column that two steps add the last one counts.
        (
            r#"(->> (rows-of "x") (where (> #c 1)) (as-of (->> (rows-of "y")) (columns '("p" "p" "q" "q" "r" "r"))) (where (> #r #b)) (groupby 1h '((max "a") (min "q"))))"#,
            "(->>\n  (rows-of \"x\" '(\"a\" \"b\" \"c\"))\n  (where (> (column \"c\") 1))\n  (as-of (->> (rows-of \"y\")) (columns '(\"q\" \"q\" \"r\" \"r\")))\n  (where (> (column \"r\") (column \"b\")))\n  (groupby 1h '((max \"a\") (min \"q\"))))",
        ),
        (
            r#"(->> (rows-of "x") (as-of (->> (rows-of "y")) (columns '("p" "p" "q" "q"))) (where (is_null #p)) (labelled left (->> (rows-of "h")) (on '("h" "h")) (labels '("o" "o"))) (groupby 1h (max "a") (by '("o"))))"#,
            "(->>\n  (rows-of \"x\" '(\"a\"))\n  (as-of (->> (rows-of \"y\")) (columns '(\"p\" \"p\")))\n  (where (is_null (column \"p\")))\n  (labelled left (->> (rows-of \"h\")) (on '(\"h\" \"h\")) (labels '(\"o\" \"o\")))\n  (groupby 1h (max \"a\") (by '(\"o\"))))",
        ),
        (
            r#"(->> (rows-of "x") (as-of (->> (rows-of "y")) (columns '("p" "p" "q" "q"))) (where (= #q #c)) (map "a" (- #p #b) "d" #e) (groupby 1h (max "a")))"#,
            "(->>\n  (rows-of \"x\" '(\"b\" \"c\"))\n  (as-of (->> (rows-of \"y\")) (columns '(\"p\" \"p\" \"q\" \"q\")))\n  (where (= (column \"q\") (column \"c\")))\n  (map \"a\" (- (column \"p\") (column \"b\")))\n  (groupby 1h (max \"a\")))",
        ),
        (
            r#"(->> (rows-of "x") (as-of (->> (rows-of "y")) (columns '("p" "p" "q" "q" "r" "r"))) (as-of (->> (rows-of "z")) (columns '("q" "v" "w" "w"))) (groupby 1h '((max "a") (min "q") (sum "r"))))"#,
            "(->>\n  (rows-of \"x\" '(\"a\"))\n  (as-of (->> (rows-of \"y\")) (columns '(\"r\" \"r\")))\n  (as-of (->> (rows-of \"z\")) (columns '(\"q\" \"v\")))\n  (groupby 1h '((max \"a\") (min \"q\") (sum \"r\"))))",
        ),
        (r#"(->> (metric "x") (where (and (<= 5 #TS) (< #TS 9))))"#, "(->>\n  (metric \"x\")\n  (range 5 9))"),
        (
            r#"(->> (metric "x") (where (or (> #TS 5) (> #V 1))))"#,
            "(->>\n  (metric \"x\")\n  (where (or (> #TS 5) (> #V 1))))",
        ),
    ];
    for (text, pushed) in cases {
        assert_eq!(push_down(parse(text, 0).unwrap()).to_string(), pushed, "{text}");
    }
}

#[test]
fn errors_say_where() {
    let cases = [
        ("", "1:1: the text ends where an expression is wanted"),
        ("(->> (metric \"x\")", "1:1: this parenthesis is never closed"),
        ("(->>\n  (metric x))", "2:11: a text such as \"host_0\" is wanted, not `x`"),
        (
            "(->> (rows-of \"x\") (as-of (->> (table \"y\")) (within 1m)))",
            "1:20: columns of a table as of the rows' times are",
        ),
        (
            "(->> (rows-of \"x\") (as-of (->> (rows-of \"y\")) (labels '(\"a\" \"b\")) (tag \"c\" \"d\")))",
            "1:20: columns of a table as of the rows' times are",
        ),
        (
            "(->> (rows-of \"x\") (as-of (->> (rows-of \"y\")) (within -1m)))",
            "1:47: columns of a table as of the rows' times are",
        ),
        ("(->> (groupby 1h max))", "1:6: `groupby` has nothing to work on"),
        ("(->> (metric \"x\") (groupby 1x max))", "1:28: \"1x\" is neither a number nor a duration"),
        ("(->> (metric \"x\") (groupby 1h mad))", "1:31: there are min, max, avg"),
        ("(->> (metric \"x\") (where (> #W 5 6)))", "1:26: `>` takes 2, not 3"),
        ("(->> (metric \"x\") (where (> V 5)))", "1:29: `V` is not known here"),
        ("(->> (range 5 5))", "1:6: the range is empty"),
        ("(->> (metric \"x\") (limit 5) (tag \"a\" \"b\"))", "1:29: `tag` selects series"),
        ("(->> (metric \"x\")) (", "1:20: this stands behind the end"),
        ("(->>)", "1:1: the query selects nothing"),
        ("(alike 0.9 (->> (all)))", "1:1: series are compared in bins of time"),
        ("(similar 3 (->> (all)) (->> (all)) (step 5m) (measure dtw))", "1:46: dtw needs a band"),
        ("(motifs 3 (->> (all)) (step 5m))", "1:11: a width such as"),
        ("(->> (metric \"x\") (fill linear))", "1:19: gaps are filled as"),
        ("(->> (metric \"x) )", "1:14: this text is never closed"),
    ];
    for (text, expected) in cases {
        let error = parse(text, 0).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
    let deep = "(".repeat(100_000);
    assert!(parse(&deep, 0).is_err());
}
