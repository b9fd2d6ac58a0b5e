//! Answers to plans: frames, and what EXPLAIN says.

use serde_json::Value;

use crate::render::series::Series;

const NS_PER_S: f64 = 1e9;

/// Frames as series: one for each column, which is a label where there are several.
pub(crate) fn read_frames(data: &Value) -> Result<Vec<Series>, String> {
    let odd = || format!("the answer is not a list of frames: {data}");
    let mut series = Vec::new();
    for frame in data["result"].as_array().ok_or_else(odd)? {
        let labels = frame["labels"].as_object().ok_or_else(odd)?.iter();
        let labels: Vec<(String, String)> =
            labels.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned())).collect();
        let (time, columns) = frame["columns"].as_array().and_then(|all| all.split_first()).ok_or_else(odd)?;
        let times = time["values"].as_array().ok_or_else(odd)?;
        for column in columns {
            let mut labels = labels.clone();
            if columns.len() > 1 {
                labels.push(("column".to_owned(), column["name"].as_str().unwrap_or_default().to_owned()));
            }
            let values = column["values"].as_array().ok_or_else(odd)?;
            let sample = |(time, value): (&Value, &Value)| {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                (!value.is_null()).then(|| time.as_i64().map(|ns| (ns as f64 / NS_PER_S, text)))?
            };
            series.push(Series { labels, samples: times.iter().zip(values).filter_map(sample).collect() });
        }
    }
    Ok(series)
}

/// A plan, and what running it took if that is known.
pub(crate) fn explained(data: &Value) -> String {
    let mut lines = vec![data["plan"].as_str().unwrap_or_default().to_owned()];
    for step in data["steps"].as_array().into_iter().flatten() {
        let elapsed_ms = step["elapsed_ns"].as_f64().unwrap_or_default() / 1e6;
        let name = step["step"].as_str().unwrap_or_default();
        lines.push(format!("; {name}: {} series, {} rows, {elapsed_ms:.3} ms", step["series"], step["rows"]));
    }
    for (name, count) in data["reads"].as_object().into_iter().flatten().filter(|(_, count)| count.is_number()) {
        lines.push(format!("; {}: {count}", name.replace('_', " ")));
    }
    for (place, origin) in data["reads"]["from"].as_object().into_iter().flatten() {
        if ["chunks", "rows", "bytes"].iter().any(|name| origin[name].as_u64() > Some(0)) {
            let (chunks, rows, bytes) = (&origin["chunks"], &origin["rows"], &origin["bytes"]);
            lines.push(format!("; from {}: {chunks} chunks, {rows} rows, {bytes} bytes", place.replace('_', " ")));
        }
    }
    let kept = &data["result_cache"];
    if kept.is_object() {
        let [memory, flash, steps] = ["from_memory", "from_flash", "steps"].map(|name| &kept[name]);
        lines.push(format!("; kept answers: {memory} of {steps} steps from memory, {flash} from flash"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_become_series() {
        let frame = |columns: &str| {
            let text = format!(
                r#"{{"result":[{{"labels":{{"h":"a"}},"columns":[{{"name":"time","values":[1500000000,2000000000]}},{columns}]}}]}}"#
            );
            read_frames(&serde_json::from_str(&text).unwrap()).unwrap()
        };
        let one = frame(r#"{"name":"value","values":[1.5,null]}"#);
        assert_eq!(one, [Series { labels: vec![("h".into(), "a".into())], samples: vec![(1.5, "1.5".into())] }]);
        let two = frame(r#"{"name":"min","values":[1,2]},{"name":"max","values":["+Inf",4]}"#);
        assert_eq!(two.len(), 2);
        assert_eq!(two[1].labels[1], ("column".into(), "max".into()));
        assert_eq!(two[1].samples, [(1.5, "+Inf".into()), (2.0, "4".into())]);
        assert!(read_frames(&Value::Null).is_err());
    }
}
