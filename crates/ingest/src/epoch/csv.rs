//! Lines of a name, a comma and a value. A first line `name,value` is a heading; a line without a value is of a series that has none.

use super::{Number, Rows};

pub(super) fn parse(body: &[u8], rows: &mut Rows) -> Result<(), String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("CSV: byte {}: not UTF-8", error.valid_up_to()))?;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end_matches('\r');
        if line.is_empty() || (number == 1 && line == "name,value") {
            continue;
        }
        take_line(line, rows).map_err(|what| format!("CSV: line {number}: {what}"))?;
    }
    Ok(())
}

fn take_line(line: &str, rows: &mut Rows) -> Result<(), String> {
    let Some((name, value)) = line.rsplit_once(',') else {
        return Err("expected a name, a comma and a value".to_owned());
    };
    let value = value.trim();
    if value.is_empty() {
        return Ok(());
    }
    let number = Number::parse(value).ok_or_else(|| format!("the value {value:?} is no number"))?;
    match name.strip_prefix('"') {
        None => rows.push(name, number),
        Some(quoted) => {
            let inner = quoted.strip_suffix('"').ok_or("the quote of the name is not closed")?;
            rows.push(&inner.replace("\"\"", "\""), number);
        }
    }
    Ok(())
}
