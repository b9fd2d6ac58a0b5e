use proptest::prelude::*;

use super::*;

fn rows(body: &str) -> Result<Vec<(String, f64)>, String> {
    let EpochBody { names, values } = parse(body.as_bytes())?;
    let values: Vec<f64> = match values {
        EpochColumn::Int(values) => values.into_iter().map(|value| value as f64).collect(),
        EpochColumn::Float(values) => values,
    };
    assert_eq!(names.len(), values.len());
    Ok(names.iter().map(str::to_owned).zip(values).collect())
}

#[test]
fn csv_and_json_say_the_same() {
    let expected = Ok(vec![("a.it".to_owned(), 3.0), ("b,c \"d\".it".to_owned(), -4.0)]);
    for body in [
        "a.it,3\n\"b,c \"\"d\"\".it\",-4\n",
        "name,value\r\na.it, 3\r\nnone.it,\r\n\"b,c \"\"d\"\".it\",-4",
        r#"{"a.it": 3, "none.it": null, "b,c \"d\".it": -4}"#,
        "{\"name\": \"a.it\", \"value\": 3}\n{\"value\": -4, \"name\": \"b,c \\\"d\\\".it\"}\n{\"name\": \"none.it\", \"value\": null}\n",
    ] {
        assert_eq!(rows(body), expected, "{body}");
    }
    assert_eq!(rows(r#"{"value": 5}"#), Ok(vec![("value".to_owned(), 5.0)]));
    assert_eq!(parse(b"a,1\nb,2.5").unwrap().values, EpochColumn::Float(vec![1.0, 2.5]));
    assert_eq!(parse(b"a,9223372036854775807").unwrap().values, EpochColumn::Int(vec![i64::MAX]));
    assert_eq!(rows(""), Ok(Vec::new()));
}

#[test]
fn errors_say_where() {
    for (body, part) in [
        ("a,1\nb", "CSV: line 2: expected a name, a comma and a value"),
        ("a,x", "CSV: line 1: the value \"x\" is no number"),
        ("\"a,1", "line 1: the quote"),
        ("{\"a\": 1}\n{\"b\": \"x\"}", "line 2"),
        ("{\"a\": [1]}", "JSON"),
        ("{\"a\": 1", "JSON"),
    ] {
        assert!(rows(body).as_ref().is_err_and(|error| error.contains(part)), "{body}: {:?}", rows(body));
    }
}

proptest! {
    #[test]
    fn binary_columns_come_back(cells in proptest::collection::vec((".{0,8}", any::<i64>()), 0..50), is_float: bool) {
        let names: EpochNames = cells.iter().map(|(name, _)| name.as_str()).collect();
        let ints: Vec<i64> = cells.iter().map(|(_, value)| *value).collect();
        let floats = ints.iter().map(|value| *value as f64).collect();
        let values = if is_float { EpochColumn::Float(floats) } else { EpochColumn::Int(ints) };
        let body = encode(&names, &values);
        for cut in MAGIC.len()..body.len() {
            prop_assert!(parse(&body[..cut]).is_err());
        }
        prop_assert_eq!(parse(&body), Ok(EpochBody { names, values }));
    }

    #[test]
    fn any_bytes_are_an_error_or_rows(bytes in proptest::collection::vec(any::<u8>(), 0..200), form in 0..3) {
        let body = match form {
            0 => bytes,
            1 => [MAGIC.as_slice(), &bytes].concat(),
            _ => [b"{\"a\":".as_slice(), &bytes].concat(),
        };
        if let Ok(EpochBody { names, values }) = parse(&body) {
            prop_assert_eq!(names.len(), values.len());
        }
    }
}
