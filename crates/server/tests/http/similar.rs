//! Similarity over HTTP: the guide's commands, rights, and what is refused.

use std::fmt::Write;

use crate::epochs::run_guide;
use crate::harness::Running;

#[test]
fn the_guides_commands_find_what_is_alike() {
    let server = Running::start();
    assert_eq!(
        run_guide(&server, "default", include_str!("../../../../docs/guide/similarity.md")),
        10,
        "blocks of the guide"
    );
}

/// Three hosts in three minutes' bins: b is like a, c is not.
fn filled() -> Running {
    let server = Running::start();
    let mut lines = String::new();
    for minute in 0..30_i64 {
        for (host, value) in [("a", minute * minute % 11), ("b", minute * minute % 11 * 3 + minute % 2), ("c", -minute)]
        {
            writeln!(lines, "load,host={host} value={value} {}", minute * 60_000_000_000).unwrap();
        }
    }
    server.write(&lines);
    server
}

#[test]
fn places_are_told_by_rank() {
    let server = filled();
    let path = "/api/v1/similar?match[]=load&reference=load{host=%22a%22}&start=0&end=1200&step=60&k=2";
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{}", answer.body);
    for part in [
        r#"{"resultType":"places","result":[{"rank":1,"metric":{"__name__":"load","host":"b"},"start":0,"end":1200,"distance":"#,
        r#"{"rank":2,"metric":{"__name__":"load","host":"c"}"#,
        r#""correlation":"#,
    ] {
        assert!(answer.body.contains(part), "{part}: {}", answer.body);
    }
    let several = server.get(&path.replace("match[]=load", "match[]=load{host=%22b%22}&match[]=load{host=%22c%22}"));
    assert_eq!(several.body, answer.body);
    let posted = server.send(
        "POST",
        "/api/v1/similar",
        &[("content-type", "application/x-www-form-urlencoded")],
        "match[]=load&reference=load{host=%22a%22}&start=0&end=1200&step=1m&k=2&measure=dtw&band=2&offsets=every&search_end=1800",
    );
    assert!(posted.status == 200 && posted.body.contains(r#""correlation":null"#), "{}", posted.body);
    let plan = server.post("/api/v1/plan", "(alike 0.9 (->> (metric \"load\") (range 0 1200000000000)) (step 1m))");
    assert!(plan.status == 200 && plan.body.contains(r#""name":"group""#), "{}", plan.body);
}

#[test]
fn errors_name_the_parameter() {
    let server = filled();
    let good = "match[]=load&reference=load{host=%22a%22}&start=0&end=1200&step=60";
    for (query, part) in [
        (good.replace("match[]=load&", ""), "match[]"),
        (good.replace("&step=60", ""), "step"),
        (good.replace("&end=1200", ""), "end"),
        (good.replace("&end=1200", "&end=0"), "it is not after start"),
        (good.replace("step=60", "step=0.000001"), "step"),
        (good.replace("step=60", "step=900"), "at least 3"),
        (format!("{good}&k=100000"), "at most 10000"),
        (format!("{good}&k=x"), "is not a number from 0 up"),
        (format!("{good}&measure=dtw"), "dtw needs a band"),
        (format!("{good}&measure=dtw&band=99999999999999999999"), "is not a number from 0 up"),
        (format!("{good}&offsets=all"), "aligned or every"),
        (format!("{good}&normalise=maybe"), "neither true nor false"),
        (good.replace("reference=load{host=%22a%22}", "reference=load{"), "ends too soon"),
        (good.replace("reference=load{host=%22a%22}", "reference=load"), "the reference is one series"),
        (good.replace("end=1200", "end=9e12"), "at most 1048576"),
        (good.replace("end=1200", "end=100000000"), "at most 1048576"),
        (format!("{good}{}", "&match[]=load".repeat(40)), "more than 32"),
    ] {
        let answer = server.get(&format!("/api/v1/similar?{query}"));
        assert!(answer.status == 400 && answer.body.contains(part), "{query}: {} {}", answer.status, answer.body);
    }
}
