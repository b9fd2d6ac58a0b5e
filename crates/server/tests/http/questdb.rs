//! What QuestDB's clients ask beside SQL.

use serde_json::Value;

use crate::harness::Running;
use crate::sql::encoded;

#[test]
fn settings_say_which_protocols_there_are() {
    let server = Running::start();
    let settings: Value = serde_json::from_str(&server.get("/settings").body).unwrap();
    assert_eq!(settings["config"]["line.proto.support.versions"], serde_json::json!([1]));
}

#[test]
fn files_are_imported_by_form() {
    let server = Running::start();
    let form = [("content-type", "multipart/form-data; boundary=x")];
    let schema = r#"[{"name":"sym","type":"SYMBOL"},{"name":"ts","type":"TIMESTAMP","pattern":"yyyy-MM-dd"}]"#;
    let csv = "ts,sym,price\n2020-01-01T00:00:00Z,a,1.5\nsoon,a,2\n2020-01-01T00:00:01Z,b,3\n";
    let body = format!(
        "--x\r\nContent-Disposition: form-data; name=\"schema\"\r\n\r\n{schema}\r\n--x\r\nContent-Disposition: form-data; name=\"data\"; filename=\"trades.csv\"\r\n\r\n{csv}\r\n--x--\r\n"
    );
    let done = server.send("POST", "/imp?name=trades&timestamp=ts&fmt=json&partitionBy=DAY", &form, &body);
    assert_eq!(done.status, 200, "{}", done.body);
    let done: Value = serde_json::from_str(&done.body).unwrap();
    assert_eq!((&done["status"], &done["location"]), (&"OK".into(), &"trades".into()));
    assert_eq!((&done["rowsImported"], &done["rowsRejected"]), (&2.into(), &1.into()), "{done}");
    let rows = server.get("/exp?query=SELECT%20sym,%20price%20FROM%20trades%20ORDER%20BY%20timestamp");
    assert_eq!(rows.body, "\"sym\",\"price\"\r\n\"a\",1.5\r\n\"b\",3\r\n");
    let text = server.send("POST", "/imp?timestamp=ts", &form, &body);
    assert!(text.body.starts_with("table: trades.csv\nrows imported: 2\nrows rejected: 1\n"), "{}", text.body);
    for (path, reason) in
        [("/imp", "name the column"), ("/imp?timestamp=x", "no column"), ("/imp?timestamp=ts&overwrite=true", "DROP")]
    {
        let refused = server.send("POST", path, &form, &body);
        assert!(refused.status == 400 && refused.body.contains(reason), "{path}: {}", refused.body);
    }
    assert_eq!(server.post("/imp", "ts,v\n1,2\n").status, 400);
}

fn exec(server: &Running, statement: &str) -> Value {
    serde_json::from_str(&server.get(&format!("/exec?query={}", encoded(statement))).body).unwrap()
}

#[test]
fn errors_of_the_text_have_their_position() {
    let server = Running::start();
    server.write("trades,sym=a price=1.5 1000000000");
    for (statement, position) in [
        ("SELECT * FRM trades", 13),
        ("SELECT 'ß'\nFROM trades WHERE )", 29),
        ("SELECT * FROM trades LIMIT 1 OFFSET", 35),
        ("SELECT nothing FROM trades", 0),
    ] {
        let answer = exec(&server, statement);
        assert_eq!(answer["position"], position, "{statement}: {answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
}

#[test]
fn names_of_tables_are_queries_of_them() {
    let server = Running::start();
    server.write("trades,sym=a price=1.5 1000000000");
    for (statement, columns) in
        [("trades", 3), ("\"trades\";", 3), ("tables()", 8), ("tables() WHERE table_name = 'trades'", 8)]
    {
        let answer = exec(&server, statement);
        assert_eq!(answer["columns"].as_array().map(Vec::len), Some(columns), "{statement}: {answer}");
        assert_eq!(answer["count"], 1, "{statement}: {answer}");
    }
    assert!(exec(&server, "nowhere")["error"].as_str().unwrap().contains("does not exist"));
}
