//! Values as texts, with units by the names that Grafana has for them.

use crate::PlotError;

/// Significant digits beside a legend's entry.
const DIGITS: usize = 4;

/// Powers of 1000 from 1 up.
const LARGE: [&str; 9] = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
/// Powers of a thousandth from a thousandth down.
const SMALL: [&str; 4] = ["m", "µ", "n", "p"];
/// Large numbers as Grafana's `short` has them.
const SHORT: [&str; 5] = ["", " K", " Mil", " Bil", " Tri"];
/// Powers of 1024 from 1 up.
const BINARY: [&str; 9] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
/// Lengths of time, with their seconds.
const TIMES: [(f64, &str); 7] =
    [(86_400.0, " d"), (3600.0, " h"), (60.0, " min"), (1.0, " s"), (1e-3, " ms"), (1e-6, " µs"), (1e-9, " ns")];

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// As they are.
    Plain,
    /// With words for thousands, millions and so on.
    Short,
    /// With letters for powers of 1000; for parts of 1, too.
    Decimal { has_small: bool },
    /// With letters for powers of 1024.
    Binary,
    /// As lengths of time, given the seconds of a unit.
    Time { unit_s: f64 },
    /// As hundredths, given what 1 is of them.
    Percent { factor: f64 },
    /// With an exponent.
    Scientific,
}

/// What values are: `bytes`, `s`, `percent` and so on.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    form: Form,
    before: String,
    after: String,
}

/// How the values of one axis are written: all alike.
#[derive(Debug, Clone)]
pub(crate) struct AxisFormat<'u> {
    unit: &'u Unit,
    /// What a text's 1 is.
    size: f64,
    letters: &'static str,
    decimals: usize,
}

impl Default for Unit {
    fn default() -> Self {
        Self::new(Form::Decimal { has_small: false }, "")
    }
}

impl Unit {
    fn new(form: Form, after: &str) -> Self {
        Self { form, before: String::new(), after: after.to_owned() }
    }

    /// The unit of a name; those that begin with `suffix:`, `prefix:` and `si:` say themselves what stands beside numbers.
    pub fn named(name: &str) -> Result<Self, PlotError> {
        if let Some(after) = name.strip_prefix("suffix:") {
            return Ok(Self::new(Form::Plain, &format!(" {}", after.trim())));
        }
        if let Some(before) = name.strip_prefix("prefix:") {
            return Ok(Self { before: before.to_owned(), ..Self::new(Form::Plain, "") });
        }
        if let Some(after) = name.strip_prefix("si:") {
            return Ok(Self::new(Form::Decimal { has_small: true }, after.trim()));
        }
        let (form, after) = known(name).ok_or_else(|| {
            PlotError::Invalid(format!(
                "unit {name:?} is not known; some that are: short, none, bytes, decbytes, bits, Bps, bps, s, ms, percent, percentunit, hertz, reqps, ops, \
                 celsius, volt, watt; suffix:TEXT, prefix:TEXT and si:TEXT say themselves what stands beside numbers"
            ))
        })?;
        Ok(Self::new(form, after))
    }

    /// A value for people; a dash if there is none.
    pub fn text(&self, value: f64) -> String {
        if value.is_nan() {
            return "–".to_owned();
        }
        if value.is_infinite() {
            return if value > 0.0 { "Inf".to_owned() } else { "-Inf".to_owned() };
        }
        let (size, letters) = self.size(value.abs());
        let number = significant(value / size, DIGITS);
        self.framed(&if self.form == Form::Scientific { exponential(value, DIGITS) } else { number }, letters)
    }

    /// A step between marks, at least as large as the given one, at which people would put them.
    pub(crate) fn step(&self, least: f64) -> f64 {
        match self.form {
            Form::Binary if least > 1.0 => {
                let size = 1024f64.powi((least.log2() / 10.0).floor() as i32);
                size * (least / size).log2().ceil().exp2()
            }
            Form::Time { unit_s } if least * unit_s > 1.0 => {
                const STEPS_S: [f64; 16] = [
                    2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0,
                    43_200.0, 86_400.0,
                ];
                let step_s = STEPS_S.into_iter().find(|step_s| *step_s >= least * unit_s);
                step_s.unwrap_or_else(|| round_up(least * unit_s / 86_400.0) * 86_400.0) / unit_s
            }
            _ => round_up(least),
        }
    }

    /// How marks of an axis are written which reaches so far from zero, with so much between two.
    pub(crate) fn for_axis(&self, farthest: f64, step: f64) -> AxisFormat<'_> {
        let (size, letters) = self.size(farthest);
        let digits = (step / size).log10();
        // As many as tell two marks apart.
        let decimals = if digits.is_finite() { (-digits).ceil().clamp(0.0, 12.0) as usize } else { 0 };
        let fits = |decimals: usize| {
            let scaled = step / size * 10f64.powi(decimals as i32);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        };
        let decimals = (decimals..decimals + 3).find(|decimals| fits(*decimals)).unwrap_or(decimals);
        AxisFormat { unit: self, size, letters, decimals }
    }

    /// What 1 of the written number is, and the letters that say so.
    fn size(&self, value: f64) -> (f64, &'static str) {
        let power = |base: f64, names: &[&'static str]| {
            let mut size = 1.0;
            let mut name = "";
            for next in names.iter().copied().skip(1) {
                if value < size * base {
                    break;
                }
                size *= base;
                name = next;
            }
            (size, name)
        };
        match self.form {
            Form::Plain | Form::Scientific => (1.0, ""),
            Form::Short => power(1e3, &SHORT),
            Form::Decimal { has_small: true } if value < 1.0 && value > 0.0 => {
                let place = ((-value.log10() / 3.0).ceil() as usize).clamp(1, SMALL.len());
                (1000f64.powi(-(place as i32)), SMALL.get(place - 1).copied().unwrap_or_default())
            }
            Form::Decimal { .. } => power(1e3, &LARGE),
            Form::Binary => power(1024.0, &BINARY),
            Form::Time { unit_s } => {
                let found = TIMES.iter().find(|(size_s, _)| value * unit_s >= *size_s);
                let (size_s, name) = match found {
                    Some(found) => *found,
                    None if value > 0.0 => (1e-9, " ns"),
                    None => (1.0, " s"),
                };
                (size_s / unit_s, name)
            }
            Form::Percent { factor } => (1.0 / factor, ""),
        }
    }

    fn framed(&self, number: &str, letters: &str) -> String {
        // Letters are part of the unit: 5 kB, 5 k.
        let gap = if !self.after.is_empty() && !self.after.starts_with([' ', '%', '°']) && !letters.starts_with(' ') {
            " "
        } else {
            ""
        };
        format!("{}{number}{gap}{letters}{}", self.before, self.after)
    }
}

impl AxisFormat<'_> {
    /// A mark's text.
    pub(crate) fn text(&self, value: f64) -> String {
        let scaled = value / self.size;
        let size = scaled.abs();
        let is_odd = size >= 1e15 || (size != 0.0 && size < 1e-9) || !size.is_finite();
        let number = if self.unit.form == Form::Scientific || is_odd {
            exponential(value, 3)
        } else {
            let text = format!("{scaled:.*}", self.decimals);
            // Not -0.
            if text.trim_start_matches('-').chars().all(|digit| matches!(digit, '0' | '.')) {
                text.trim_start_matches('-').to_owned()
            } else {
                text
            }
        };
        self.unit.framed(&number, if is_odd { "" } else { self.letters })
    }
}

/// The form of a name, and what stands after numbers.
fn known(name: &str) -> Option<(Form, &'static str)> {
    let decimal = Form::Decimal { has_small: true };
    let counted = Form::Decimal { has_small: false };
    let time = |unit_s| Form::Time { unit_s };
    Some(match name {
        "none" | "string" => (Form::Plain, ""),
        "short" => (Form::Short, ""),
        "sci" => (Form::Scientific, ""),
        "percent" => (Form::Percent { factor: 1.0 }, "%"),
        "percentunit" => (Form::Percent { factor: 100.0 }, "%"),
        "humidity" => (Form::Plain, " %H"),
        "bytes" => (Form::Binary, "B"),
        "decbytes" => (counted, "B"),
        "bits" => (Form::Binary, "b"),
        "decbits" => (counted, "b"),
        "Bps" => (counted, "B/s"),
        "binBps" => (Form::Binary, "B/s"),
        "bps" => (counted, "b/s"),
        "binbps" => (Form::Binary, "b/s"),
        "pps" => (counted, "p/s"),
        "ns" => (time(1e-9), ""),
        "µs" | "us" => (time(1e-6), ""),
        "ms" => (time(1e-3), ""),
        "s" | "dtdurations" => (time(1.0), ""),
        "m" => (time(60.0), ""),
        "h" => (time(3600.0), ""),
        "d" => (time(86_400.0), ""),
        "hertz" => (decimal, "Hz"),
        "reqps" => (counted, " req/s"),
        "ops" => (counted, " ops/s"),
        "iops" => (counted, " io/s"),
        "cps" => (counted, " c/s"),
        "rps" => (counted, " rd/s"),
        "wps" => (counted, " wr/s"),
        "celsius" => (Form::Plain, " °C"),
        "fahrenheit" => (Form::Plain, " °F"),
        "kelvin" => (Form::Plain, " K"),
        "degree" => (Form::Plain, "°"),
        "watt" => (decimal, "W"),
        "watth" => (decimal, "Wh"),
        "volt" => (decimal, "V"),
        "amp" => (decimal, "A"),
        "joule" => (decimal, "J"),
        "ohm" => (decimal, "Ω"),
        "pressurehpa" => (Form::Plain, " hPa"),
        "pressurebar" => (decimal, "bar"),
        "velocityms" => (Form::Plain, " m/s"),
        "velocitykmh" => (Form::Plain, " km/h"),
        "lengthm" => (decimal, "m"),
        "lengthmm" => (Form::Plain, " mm"),
        "litre" => (decimal, "L"),
        "rotrpm" => (Form::Plain, " rpm"),
        "dB" => (Form::Plain, " dB"),
        "dBm" => (Form::Plain, " dBm"),
        _ => return None,
    })
}

/// The smallest of 1, 2, 5 and 10 times a power of ten that is not less.
fn round_up(least: f64) -> f64 {
    let size = 10f64.powf(least.log10().floor());
    if !size.is_finite() || size <= 0.0 {
        return least;
    }
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * size >= least * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * size
}

/// A number with so many digits that count; zeros at its end are left out.
fn significant(value: f64, digits: usize) -> String {
    let nearest: f64 = format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value);
    let size = nearest.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if (1e-4..1e15).contains(&size) { nearest.to_string() } else { exponential(value, digits) }
}

fn exponential(value: f64, digits: usize) -> String {
    let text = format!("{value:.*e}", digits.saturating_sub(1));
    let (number, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    if exponent == "0" { number.to_owned() } else { format!("{number}e{exponent}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_people_do() {
        for (unit, value, expected) in [
            ("none", 1_234_567.0, "1235000"),
            ("short", 1_234_567.0, "1.235 Mil"),
            ("short", 950.0, "950"),
            ("bytes", 1536.0, "1.5 KiB"),
            ("bytes", 0.0, "0 B"),
            ("bytes", 5e9, "4.657 GiB"),
            ("decbytes", 5e9, "5 GB"),
            ("Bps", 125_000.0, "125 kB/s"),
            ("bps", -2e6, "-2 Mb/s"),
            ("s", 0.0025, "2.5 ms"),
            ("s", 90.0, "1.5 min"),
            ("ms", 1500.0, "1.5 s"),
            ("s", 0.0, "0 s"),
            ("h", 48.0, "2 d"),
            ("ns", 5e-4, "0.0005 ns"),
            ("percent", 12.345, "12.35%"),
            ("percentunit", 0.5, "50%"),
            ("hertz", 2.4e9, "2.4 GHz"),
            ("volt", 0.012, "12 mV"),
            ("celsius", -3.25, "-3.25 °C"),
            ("reqps", 1500.0, "1.5k req/s"),
            ("sci", 12_345.0, "1.234e4"),
            ("suffix:apples", 3.0, "3 apples"),
            ("prefix:€", 3.5, "€3.5"),
            ("si:g", 0.003, "3 mg"),
            ("none", f64::NAN, "–"),
            ("none", f64::NEG_INFINITY, "-Inf"),
            ("bytes", f64::MAX, "1.487e284 YiB"),
            ("volt", 5e-324, "4.941e-312 pV"),
        ] {
            assert_eq!(Unit::named(unit).unwrap().text(value), expected, "{unit} {value}");
        }
        assert_eq!(Unit::default().text(0.25), "0.25");
        assert!(Unit::named("furlong").unwrap_err().to_string().contains("\"furlong\" is not known"));
    }

    #[test]
    fn steps_are_round() {
        for (unit, least, expected) in [
            ("none", 0.3, 0.5),
            ("none", 7.0, 10.0),
            ("none", 1.0, 1.0),
            ("none", 2e-5, 2e-5),
            ("bytes", 600.0, 1024.0),
            ("bytes", 3000.0, 4096.0),
            ("bytes", 0.3, 0.5),
            ("s", 20.0, 30.0),
            ("s", 0.02, 0.02),
            ("ms", 40_000.0, 60_000.0),
            ("s", 200_000.0, 432_000.0),
        ] {
            let step = Unit::named(unit).unwrap().step(least);
            assert!((step / expected - 1.0).abs() < 1e-12, "{unit} {least}: {step}");
        }
    }

    #[test]
    fn marks_of_an_axis_are_alike() {
        for (unit, step, marks, expected) in [
            ("none", 0.5, [0.0, 0.5, 1.0], ["0.0", "0.5", "1.0"]),
            ("bytes", 512.0, [0.0, 512.0, 1024.0], ["0.0 KiB", "0.5 KiB", "1.0 KiB"]),
            ("s", 30.0, [-30.0, 0.0, 90.0], ["-0.5 min", "0.0 min", "1.5 min"]),
            ("percentunit", 0.25, [0.0, 0.25, 0.5], ["0%", "25%", "50%"]),
            ("Bps", 250.0, [750.0, 1000.0, 1250.0], ["0.75 kB/s", "1.00 kB/s", "1.25 kB/s"]),
        ] {
            let unit = Unit::named(unit).unwrap();
            let format =
                unit.for_axis(marks.into_iter().fold(0.0_f64, |most: f64, mark: f64| mark.abs().max(most)), step);
            assert_eq!(marks.map(|mark| format.text(mark)), expected.map(str::to_owned), "{unit:?}");
        }
    }
}
