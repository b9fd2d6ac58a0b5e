//! Expectations are those of the documentation of Go's package and of Prometheus's templates.

use super::*;

fn sample(instance: &str, value: f64) -> Value {
    let labels =
        [("__name__", "metric"), ("instance", instance)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    Value::Sample(Arc::new(labels.into_iter().collect()), value)
}

fn expand(text: &str) -> Result<String, String> {
    let labels =
        TextMap::from([("instance".to_owned(), "a.example:9100".to_owned()), ("job".to_owned(), "node".to_owned())]);
    let external = TextMap::from([("region".to_owned(), "eu".to_owned())]);
    let dot = alert_data(&labels, &external, "https://t.example/prom/", 1_234_567.0);
    let query = |text: &str| match text {
        "metric" => Ok(Value::List(Arc::new(vec![sample("b", 21.0), sample("a", 11.0)]))),
        "none" => Ok(Value::List(Arc::default())),
        _ => Err("unknown".to_owned()),
    };
    let expansion =
        Expansion { dot: &dot, time_ms: 1_435_065_584_128, external_url: "https://t.example/prom/", query: &query };
    Template::parse("test", &with_definitions(text))?.expand(&expansion)
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(expand(text).as_deref(), Ok(*expected), "{text}");
    }
}

#[test]
fn alerts() {
    check(&[
        ("{{ $labels.instance }} of {{ $labels.job }} is {{ $value }}", "a.example:9100 of node is 1.234567e+06"),
        ("{{ $labels.missing }}.", "."),
        ("{{ $externalLabels.region }} {{ $externalURL }}", "eu https://t.example/prom/"),
        ("{{ externalURL }}{{ pathPrefix }}", "https://t.example/prom//prom"),
        ("{{ .Labels.job }}{{ .Value }}", "node1.234567e+06"),
        ("{{ printf \"%.2f\" $value }}", "1234567.00"),
        ("{{ $value | printf \"%.1f\" }}", "1234567.0"),
        ("{{ if gt $value 100.0 }}high{{ else }}low{{ end }}", "high"),
        ("{{ range $name, $value := $labels }}{{ $name }}={{ $value }};{{ end }}", "instance=a.example:9100;job=node;"),
        ("{{ index $labels \"job\" }}", "node"),
        ("plain", "plain"),
    ]);
}

#[test]
fn actions() {
    check(&[
        ("{{ if false }}a{{ else if true }}b{{ else }}c{{ end }}", "b"),
        ("{{ with $x := 5 }}{{ $x }}{{ end }}", "5"),
        ("{{ with \"\" }}a{{ else with \"x\" }}{{ . }}{{ else }}c{{ end }}", "x"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if true }}{{ $x := 2 }}{{ $x }}{{ end }}{{ $x }}", "21"),
        ("{{ define \"a\" }}<{{ . }}>{{ end }}{{ template \"a\" 7 }}", "<7>"),
        ("{{ block \"a\" 8 }}[{{ . }}]{{ end }}", "[8]"),
        ("a {{- 1 -}} b", "a1b"),
        ("a {{- /* nothing */ -}} b", "ab"),
        ("{{/* nothing */}}x", "x"),
        ("{{ range query \"none\" }}x{{ else }}empty{{ end }}", "empty"),
        ("{{ range $i, $s := query \"metric\" }}{{ $i }}{{ $s.Labels.instance }}{{ .Value }} {{ end }}", "0b21 1a11 "),
        ("{{ range query \"metric\" }}{{ break }}{{ end }}ok", "ok"),
        ("{{ range query \"metric\" }}{{ if eq .Value 21.0 }}{{ continue }}{{ end }}{{ .Value }}{{ end }}", "11"),
        ("{{ (index (query \"metric\") 1).Value }}", "11"),
        ("{{ and 1 0 }} {{ and 1 2 }} {{ or 0 3 }} {{ or 0 \"\" }}.{{ not 1 }}", "0 2 3 .false"),
        (
            "{{ eq 1 2 1 }} {{ ne \"a\" \"b\" }} {{ lt 1 2 }} {{ le 2 2 }} {{ gt 1.5 2.5 }} {{ ge \"b\" \"a\" }}",
            "true true true true false true",
        ),
        ("{{ len \"abc\" }} {{ slice \"abcd\" 1 3 }} {{ index (query \"metric\") 0 | value }}", "3 bc 21"),
        ("{{ print 1 2 \"x\" 3 }} {{ println \"a\" 1 }}", "1 2x3 a 1\n"),
        ("{{ html \"<a&b>\" }} {{ js \"it's\" }} {{ urlquery \"a b&c\" }}", "&lt;a&amp;b&gt; it\\'s a+b%26c"),
        ("{{ 0x1F }} {{ 1e3 }} {{ 'a' }} {{ `raw\\n` }} {{ -3 }} {{ true }}", "31 1000 97 raw\\n -3 true"),
        ("{{ template \"b\" }}{{ define \"b\" }}later{{ end }}", "later"),
    ]);
}

#[test]
fn functions_of_prometheus() {
    check(&[
        ("{{ query \"metric\" | first | value }}", "21"),
        ("{{ query \"metric\" | sortByLabel \"instance\" | first | label \"instance\" }}", "a"),
        ("{{ query \"metric\" | first | strvalue }}", ""),
        ("{{ humanize 0.0 }} {{ humanize 1.0 }} {{ humanize 1234567.0 }} {{ humanize 0.12 }}", "0 1 1.235M 120m"),
        ("{{ humanize \"1234567.0\" }} {{ humanize 1435065584 }}", "1.235M 1.435G"),
        (
            "{{ humanize1024 0.0 }} {{ humanize1024 1.0 }} {{ humanize1024 1048576.0 }} {{ humanize1024 0.12 }}",
            "0 1 1Mi 0.12",
        ),
        (
            "{{ range $x := args 0 1 60 3600 86400 86400.5 }}{{ humanizeDuration $x }}:{{ end }}",
            "0s:1s:1m 0s:1h 0m 0s:1d 0h 0m 0s:1d 0h 0m 0s:",
        ),
        (
            "{{ humanizeDuration -3661 }} {{ humanizeDuration .1 }} {{ humanizeDuration .0001 }} {{ humanizeDuration 12.3456789 }}",
            "-1h 1m 1s 100ms 100us 12.35s",
        ),
        (
            "{{ humanizePercentage 0.234567 }} {{ humanizePercentage 1.23456 }} {{ humanizePercentage -0.22222 }}",
            "23.46% 123.5% -22.22%",
        ),
        ("{{ 1435065584.128 | humanizeTimestamp }}", "2015-06-23 13:19:44.128 +0000 UTC"),
        (
            "{{ 86400 | toDuration }} {{ 1.5 | toDuration }} {{ 1435065584.128 | toTime }}",
            "24h0m0s 1.5s 2015-06-23 13:19:44.128 +0000 UTC",
        ),
        ("{{ now }}", "1.435065584128e+09"),
        ("{{ \"aa bb CC\" | title }} {{ \"aa\" | toUpper }} {{ \"BB\" | toLower }}", "Aa Bb CC AA bb"),
        ("{{ stripPort \"a:80\" }} {{ stripPort \"[::1]:80\" }} {{ stripPort \"a\" }}", "a ::1 a"),
        (
            "{{ stripDomain \"a.example.org:80\" }} {{ stripDomain \"1.2.3.4:80\" }} {{ stripDomain \"b.c\" }}",
            "a:80 1.2.3.4:80 b",
        ),
        ("{{ match \"a+\" \"aa\" }} {{ match \"a+\" \"b\" }}", "true false"),
        ("{{ reReplaceAll \"(a)b\" \"x$1\" \"ab\" }}", "xa"),
        (
            "{{ graphLink \"up > 1\" }} {{ tableLink \"up\" }}",
            "/graph?g0.expr=up+%3E+1&g0.tab=0 /graph?g0.expr=up&g0.tab=1",
        ),
        ("{{ parseDuration \"1h2m10ms\" }} {{ urlQueryEscape \"/a b\" }}", "3720.01 %2Fa+b"),
        (
            "{{ define \"x\" }}{{ .arg0 }}-{{ .arg1 }}{{ end }}{{ template \"x\" (args 1 \"b\") }} {{ tmpl \"x\" (args 2 3) }}",
            "1-b 2-3",
        ),
        ("{{ safeHtml \"<b>\" }}", "<b>"),
    ]);
}

#[test]
fn formats_of_go() {
    check(&[
        (
            "{{ printf \"%d|%5d|%-5d|%05d|%+d|%x|%X|%o|%b|%c|%U\" 42 42 42 42 42 42 42 42 5 97 97 }}",
            "42|   42|42   |00042|+42|2a|2A|52|101|a|U+0061",
        ),
        (
            "{{ printf \"%s|%10s|%-4s|%.2s|%q|%v\" \"ab\" \"ab\" \"ab\" \"abc\" \"a\\\"b\" \"v\" }}",
            "ab|        ab|ab  |ab|\"a\\\"b\"|v",
        ),
        (
            "{{ printf \"%f|%.1f|%8.2f|%e|%g|%.3g|%G\" 1.5 1.25 3.14159 1234.5 0.00001 1234567.0 1e20 }}",
            "1.500000|1.2|    3.14|1.234500e+03|1e-05|1.23e+06|1E+20",
        ),
        ("{{ printf \"%v %v %v\" 1.0 100000.0 1000000.0 }}", "1 100000 1e+06"),
        ("{{ printf \"%t %T %%\" true 1.5 }}", "true float64 %"),
        (
            "{{ printf \"%d\" 1.5 }} {{ printf \"%s\" }} {{ printf \"x\" 1 }}",
            "%!d(float64=1.5) %!s(MISSING) x%!(EXTRA int=1)",
        ),
    ]);
}

#[test]
fn errors() {
    for (text, expected) in [
        ("{{ nope }}", "function \"nope\" not defined"),
        ("{{ $nope }}", "undefined variable \"$nope\""),
        ("{{ if }}x{{ end }}", "missing value for command"),
        ("{{ if true }}x", "unexpected EOF"),
        ("{{ end }}", "unexpected {{end}}"),
        ("{{ \"x }}", "unterminated quoted string"),
        ("{{", "unclosed action"),
        ("{{ 1 2 }}", "non executable command in pipeline"),
        ("{{ break }}", "{{break}} outside {{range}}"),
        ("{{ query \"none\" | first }}", "first() called on vector with no elements"),
        ("{{ query \"bad\" }}", "error calling query: unknown"),
        ("{{ template \"none\" }}", "template \"none\" not defined"),
        ("{{ eq 1 1.0 }}", "incompatible types for comparison"),
        ("{{ humanize \"x\" }}", "strconv.ParseFloat: parsing \"x\": invalid syntax"),
        ("{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}", "exceeded maximum template depth"),
        ("{{ range 1000000 }}x{{ end }}", "the template takes too many steps"),
        ("{{ $x := \"0123456789\" }}{{ range 40 }}{{ $x = print $x $x }}{{ end }}", "the template makes too much text"),
    ] {
        let error = expand(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert!(expand(&"{{ if true }}".repeat(10_000)).unwrap_err().contains("nested too deeply"));
    assert!(expand(&format!("{{{{ {}1 }}}}", "(".repeat(10_000))).unwrap_err().contains("nested too deeply"));
}
