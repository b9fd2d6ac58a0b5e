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
fn a_bad_cell_is_refused_and_the_column_keeps_its_type() {
    check(
        "time,v,up,note\n1,1,true,a\n2,n/a,true,b\n3,3,maybe,c\n4,4,false,4\n",
        mapping(&[]),
        concat!(
            "m v=1.0,up=true,note=\"a\" 1000000000\n",
            "m v=4.0,up=false,note=\"4\" 4000000000\n",
            "3! column \"v\": \"n/a\" is no float\n",
            "4! column \"up\": \"maybe\" is no boolean\n",
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

/// Lines and what was left out, of a file that is read by places.
#[track_caller]
fn check_places(file: &str, format: &str, expected: &str) {
    let format = CsvFormat::parse(format).unwrap().with_labels(vec![("job".to_owned(), "x".to_owned())]);
    let mut importer = CsvImporter::by_places(file.as_bytes(), format, Limits::default());
    let (mut out, mut notes, mut points) = (Vec::new(), String::new(), 0);
    while let Some(chunk) = importer.next_chunk(2, &mut out).unwrap() {
        points += chunk.points;
        for error in chunk.errors.first {
            notes = notes + &format!("{}", error.line) + "! " + &error.reason + "\n";
        }
    }
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.lines().count() as u64, points);
    assert_eq!(out + &notes, expected, "{file}");
}

#[test]
fn columns_are_taken_by_their_places() {
    check_places(
        "north,3,1.5,1700000000,more\n\"so,uth\",4,,1700000001\n",
        "1:label:station,2:metric:level,3:metric:flow,4:time:unix_s",
        concat!(
            "level,job=x,station=north value=3.0 1700000000000000000\n",
            "flow,job=x,station=north value=1.5 1700000000000000000\n",
            "level,job=x,station=so\\,uth value=4.0 1700000001000000000\n",
        ),
    );
    check_places("7\n", "1:metric:a", "a,job=x value=7.0\n");
    check_places("7,8\n7\n", "1:metric:a,2:label:job", "a,job=8 value=7.0\na value=7.0\n");
    check_places(
        "29.02.2024 13:14,5\n2024-02-29,5\n",
        "1:time:custom:02.01.2006 15:04,2:metric:a",
        "a,job=x value=5.0 1709212440000000000\n2! \"2024-02-29\" is no time (02.01.2006 15:04)\n",
    );
    check_places(
        "time,level,flow\n1,2,3\n2,,\n3,4\n4,5,six\n",
        "1:time:unix_ms,2:metric:level,3:metric:flow",
        concat!(
            "level,job=x value=2.0 1000000\nflow,job=x value=3.0 1000000\nlevel,job=x value=4.0 3000000\n",
            "1! \"time\" is no time (Milliseconds)\n",
            "3! none of the columns of metrics has a value\n",
            "5! column \"value\": \"six\" is no float\n",
        ),
    );
}

#[test]
fn names_are_held_against_the_limits_where_they_are_written() {
    let limits = Limits { tags_max: 2, name_bytes_max: 8, ..Limits::default() };
    for (format, reason) in [
        ("1:metric:mmmmmmmmm", "the measurement is longer than 8 bytes (name_bytes_max)"),
        ("1:metric:mmmm mmmm", "the measurement is longer than 8 bytes (name_bytes_max)"),
        ("1:metric:m,2:label:ttttttttt", "a tag's name is longer than 8 bytes (name_bytes_max)"),
        ("1:metric:m,2:label:a,3:label:b,4:label:c", "more than 2 tags (tags_max)"),
        ("1:metric:m,2:label:a,3:label:a", "duplicate tags: 'a' is given twice"),
        ("1:metric:m,2:label:__name__", "the tag name '__name__' is reserved"),
    ] {
        let format = CsvFormat::parse(format).unwrap();
        let mut importer = CsvImporter::by_places(&b"1,,,\n1,2,3,4"[..], format, limits.clone());
        let errors = importer.next_chunk(9, &mut Vec::new()).unwrap().unwrap().errors.first;
        let last = errors.last().map(|error| (error.line, error.reason.as_str()));
        assert_eq!(last, Some((2, reason)));
        assert_eq!(errors.len() == 2, reason.starts_with("the measurement"), "{reason}");
    }
    let expected = "2! a field's name is longer than 8 bytes (name_bytes_max)\n";
    assert_eq!(import(b"time,fffffffff\n1,1", mapping(&[]), 1, limits).unwrap(), expected);
}

#[test]
fn rows_are_held_against_the_limits_of_lines() {
    let limits = Limits { fields_max: 2, key_bytes_max: 20, line_bytes_max: 45, ..Limits::default() };
    let file = "time,h,a,b,c\n1,x,1,,\n2,xxxxxxxxxxxxxxxxx,1,,\n3,x,1,2,3\n4,x,1,xxxxxxxxxxxxxxxxxxxx,\n";
    let expected = concat!(
        "m,h=x a=1.0 1000000000\n",
        "3! measurement and tags take more than 20 bytes (key_bytes_max)\n",
        "4! more than 2 fields (fields_max)\n",
        "5! the line is longer than 45 bytes (line_bytes_max)\n",
    );
    assert_eq!(import(file.as_bytes(), mapping(&["h"]), 1000, limits).unwrap(), expected);
}
