//! Administration over HTTP.

use crate::harness::Running;

#[test]
fn databases_are_made_shown_and_changed() {
    let server = Running::start();
    let path = "/api/v1/admin/databases/metrics%20a";
    assert_eq!(server.get(path).status, 404);
    let answer = server.send("PUT", path, &[], r#"{"retention":"1y","folds":"30d:5m,90d:1h"}"#);
    let policy = r#"{"folds":"30d:5m,90d:1h","name":"metrics a","retention":"365d"}"#;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, format!(r#"{{"status":"success","data":{policy}}}"#).as_str())
    );
    let answer = server.send("PUT", path, &[], r#"{"folds":""}"#);
    assert!(answer.body.contains(r#""folds":"","name":"metrics a","retention":"365d""#), "{}", answer.body);
    let all = server.get("/api/v1/admin/databases");
    assert!(all.body.contains(r#""name":"metrics a""#), "{}", all.body);
    for (body, why) in [
        (r#"{"folds":"30d:7m,90d:1h"}"#, "multiple"),
        (r#"{"folds":"5m:30d"}"#, "write 30d:5m"),
        (r#"{"folds":"30:5m"}"#, "has no unit"),
        (r#"{"strict_folds":"yes"}"#, "neither true nor false"),
        (r#"{"retentoin":"1d"}"#, "unknown field"),
        ("nothing", "cannot be read"),
    ] {
        let answer = server.send("PUT", path, &[], body);
        assert!(answer.status == 400 && answer.body.contains(why), "{body}: {}", answer.body);
    }
}

#[test]
fn responses_about_folded_data_have_a_warning() {
    let server = Running::start();
    let path = "/api/v1/admin/databases/default";
    assert_eq!(server.send("PUT", path, &[], r#"{"folds":"30d:5m"}"#).status, 200);
    let lines: Vec<String> =
        (0..240i64).map(|number| format!("m,host=a v={number} {}", number * 10_000_000_000)).collect();
    server.write(&lines.join("\n"));
    assert_eq!(server.post("/api/v1/admin/compact", "").status, 200);
    let asked = |path: &str| {
        let answer = server.get(path);
        (answer.status, answer.header("x-thalweg-warning").contains("folded"), answer.body)
    };
    for (exact, inexact) in [
        ("/sql?query=SELECT+count(v)+FROM+m", "/sql?query=SELECT+count(v),stddev(v)+FROM+m"),
        ("/query?db=default&q=SELECT+mean(v)+FROM+m", "/query?db=default&q=SELECT+mean(v),median(v)+FROM+m"),
        (
            "/api/v1/plan?query=(-%3E%3E+(table+%22m%22)+(groupby+all+(count+%22v%22)))",
            "/api/v1/plan?query=(-%3E%3E+(table+%22m%22)+(groupby+all+(stddev+%22v%22)))",
        ),
    ] {
        let (status, is_warned, body) = asked(exact);
        assert!(status == 200 && !is_warned && (body.contains("240") || body.contains("119.5")), "{exact}: {body}");
        let (status, is_warned, body) = asked(inexact);
        assert!(status == 200 && is_warned, "{inexact}: {body}");
    }
    let promql = |query: &str| server.get(&format!("/api/v1/query?query={query}&time=2399")).body;
    let exact = promql("count_over_time(m_v[40m])");
    assert!(exact.contains(r#""240""#) && !exact.contains("warnings"), "{exact}");
    // A cached response has the warning, too.
    for _ in 0..2 {
        let inexact = promql("stddev_over_time(m_v[40m])");
        assert!(inexact.contains(r#""warnings":["PromQL warning: part of this time range is folded"#), "{inexact}");
    }
    assert_eq!(server.send("PUT", path, &[], r#"{"strict_folds":true}"#).status, 200);
    assert!(promql("stddev_over_time(m_v[40m])").contains("strict about folded data"));
    assert!(asked("/sql?query=SELECT+stddev(v)+FROM+m").2.contains("strict about folded data"));
    // A row that is sent again is refused, and the sender hears of it.
    let answer = server.post("/write?db=default", "m,host=a v=7 10000000000");
    assert!(answer.status == 400 && answer.body.contains("points in folded time"), "{}", answer.body);
}

#[test]
fn series_are_deleted_as_in_prometheus() {
    let server = Running::start();
    server.write("m,host=a v=1 1000000000\nm,host=a v=2 5000000000\nm,host=b v=3 1000000000");
    let selector = "match[]=m_v%7Bhost%3D%22a%22%7D";
    assert_eq!(server.post("/api/v1/admin/tsdb/delete_series", "").status, 400);
    let answer = server.post(&format!("/api/v1/admin/tsdb/delete_series?{selector}&start=0&end=1"), "");
    assert_eq!((answer.status, answer.header("x-thalweg-series")), (204, "1"));
    assert_eq!(server.result("default", "m_v", 1), r#"[{"metric":{"__name__":"m_v","host":"b"},"value":[1,"3"]}]"#);
    assert!(server.result("default", "m_v{host='a'}", 5).contains(r#"[5,"2"]"#), "what is later stays");
    assert_eq!(server.send("PUT", "/api/v1/admin/tsdb/clean_tombstones", &[], "").status, 204);
    let answer = server.post("/api/v1/admin/compact", "");
    assert!(answer.status == 200 && answer.body.contains(r#""deletes_after":0"#), "{}", answer.body);
    let foreign = [("origin", "https://elsewhere.example")];
    assert_eq!(server.send("POST", "/api/v1/admin/compact", &foreign, "").status, 403);
}

#[test]
fn a_backup_goes_where_it_is_told() {
    let folder = std::env::temp_dir().join(format!("thalweg-admin-backup-{}", std::process::id()));
    let place = folder.to_str().unwrap().to_owned();
    let server = Running::start_with(|settings| {
        settings.backup_targets = vec![thalweg_server::BackupTarget::parse(&format!("disk={place}"))];
    });
    server.write("m,host=a v=1 1000000000");
    let path = format!("/api/v1/admin/backup?keep=1&to={}", folder.display());
    let answer = server.post(&path, "");
    assert!(answer.status == 200 && answer.body.contains(r#""backups_removed":0"#), "{}", answer.body);
    let answer = server.post(&path, "");
    assert!(
        answer.body.contains(r#""files_copied":0"#) && answer.body.contains(r#""backups_removed":1"#),
        "{}",
        answer.body
    );
    assert!(folder.join("LATEST").is_file());
    std::fs::remove_dir_all(&folder).unwrap();
    for (query, status, why) in [
        ("", 400, "missing"),
        ("to=disk&keep=0", 400, "from 1 up"),
        ("to=ftp://x", 403, "--backup-targets"),
        ("to=/tmp/thalweg-never", 403, "names are disk"),
        ("to=s3://bucket/x", 403, "--backup-targets"),
    ] {
        let answer = server.post(&format!("/api/v1/admin/backup?{query}"), "");
        assert!(answer.status == status && answer.body.contains(why), "{query}: {}", answer.body);
    }
    let answer = server.post("/api/v1/admin/backup?to=disk", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    std::fs::remove_dir_all(&folder).unwrap();
}
