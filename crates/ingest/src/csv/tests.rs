//! Files as tables.

use super::*;

fn mapping(tags: &[&str]) -> CsvMapping {
    CsvMapping {
        measurement: "m".to_owned(),
        time_column: Some("time".to_owned()),
        time_format: TimeFormat::Seconds,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        fields: None,
        delimiter: b',',
    }
}

fn import(file: &[u8], mapping: CsvMapping, rows_max: usize, limits: Limits) -> Result<String, CsvError> {
    let mut importer = CsvImporter::new(file, mapping, limits)?;
    let mut out = Vec::new();
    let mut notes = String::new();
    let mut points = 0;
    while let Some(chunk) = importer.next_chunk(rows_max, &mut out)? {
        points += chunk.points;
        for error in chunk.errors.first {
            notes = notes + &format!("{}", error.line) + "! " + &error.reason + "\n";
        }
    }
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.matches("00\n").count() as u64, points);
    Ok(out + &notes)
}

#[track_caller]
fn check(file: &str, mapping: CsvMapping, expected: &str) {
    assert_eq!(import(file.as_bytes(), mapping, 1000, Limits::default()).unwrap(), expected, "{file}");
}

#[test]
fn types_are_worked_out() {
    let file = "time,host,load,up,note\n1,a,1,true,x\n2,b,2.5,False,7\n";
    check(
        file,
        mapping(&["host"]),
        concat!(
            "m,host=a load=1.0,up=true,note=\"x\" 1000000000\n",
            "m,host=b load=2.5,up=false,note=\"7\" 2000000000\n",
        ),
    );
}

#[test]
fn types_and_columns_can_be_given() {
    let fields = ["load:integer", "size:unsigned", "id:string", "plain"].map(CsvField::parse).to_vec();
    let mapping = CsvMapping { fields: Some(fields), ..mapping(&[]) };
    let file = "time,host,load,size,id,plain\n1,a,-1,2,3,4\n2,a,1.5,,,\n";
    check(
        file,
        mapping,
        concat!("m load=-1i,size=2u,id=\"3\",plain=4.0 1000000000\n", "3! column \"load\": \"1.5\" is no integer\n",),
    );
    assert_eq!(CsvField::parse("a:b").name, "a:b");
}

#[test]
fn cells_may_be_empty_quoted_and_odd() {
    let file = "time, v ,s\r\n1,,\"two\nlines, \"\"quoted\"\"\"\r\n2,nan,\r\n3,1,x\r\n";
    check(
        file,
        mapping(&[]),
        concat!(
            "m s=\"two\nlines, \\\"quoted\\\"\" 1000000000\n",
            "m v=1.0,s=\"x\" 3000000000\n",
            "4! the point has no field\n",
        ),
    );
}

#[test]
fn bad_rows_are_reported_and_left_out() {
    let file = "time,host,v\n1,a,1\nnoon,a,2\n3,a\n4,a\\,4\n5,,5\n";
    check(
        file,
        mapping(&["host"]),
        concat!(
            "m,host=a v=1.0 1000000000\n",
            "m v=5.0 5000000000\n",
            "4! the row has 2 cells, the header 3\n",
            "3! \"noon\" is no time (Seconds)\n",
            "5! \"a\\\\\" cannot be written in line protocol\n",
        ),
    );
    let text = import(b"time,v\n1,1\n2,\xff\n", mapping(&[]), 1, Limits::default()).unwrap();
    assert_eq!(text, "m v=1.0 1000000000\n3! cell 2 is not valid UTF-8\n");
}

#[test]
fn types_hold_over_chunks() {
    let file = "time,v,w\n1,1,\n2,x,y\n3,3,z\n";
    let text = import(file.as_bytes(), mapping(&[]), 1, Limits::default()).unwrap();
    let expected = "m v=1.0 1000000000\nm v=3.0,w=\"z\" 3000000000\n3! column \"v\": \"x\" is no float\n";
    assert_eq!(text, expected);
}

#[test]
fn a_mapping_must_fit_the_file() {
    let cases = [
        ("time,v\n", mapping(&["host"]), "the file has no column \"host\"; it has: time, v"),
        ("v\n", mapping(&[]), "the file has no column \"time\"; it has: v"),
        ("time,v,v\n", mapping(&[]), "the file has two columns \"v\""),
        ("time,host\n", mapping(&["host"]), "no column is left for fields"),
        ("", mapping(&[]), "the file has no column \"time\"; it has: "),
    ];
    for (file, mapping, expected) in cases {
        let error = import(file.as_bytes(), mapping, 10, Limits::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn no_record_is_longer_than_the_limit() {
    let file = format!("time,v\n1,1\n2,\"{}", "x,\n".repeat(100_000));
    let limits = Limits { line_bytes_max: 10_000, ..Limits::default() };
    let error = import(file.as_bytes(), mapping(&[]), 10, limits).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the CSV file: a record is longer than 10000 bytes (line_bytes_max)");
}
