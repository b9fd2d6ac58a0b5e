//! Distances, profiles, motifs and discords beside those of stumpy, `NumPy` and dtaidistance: the same to nine digits.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, clippy::float_cmp, reason = "tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use thalweg_similarity::{
    DtwPattern, Mass, MatrixProfile, Pattern, ProfileTask, correlation_of, discords, moments_of_windows, motifs,
};

/// Numbers between 0 and 1, always the same.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn walk(&mut self, count: usize) -> Vec<f64> {
        let mut at = 50.0;
        let mut step = || {
            at += self.next() - 0.5;
            at
        };
        (0..count).map(|_| step()).collect()
    }

    fn noise(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.next() * 10.0).collect()
    }
}

/// A question for Python.
struct Question<'a> {
    kind: &'a str,
    width: usize,
    band: usize,
    pattern: &'a [f64],
    series: &'a [f64],
}

impl Question<'_> {
    fn line(&self) -> String {
        let numbers = |values: &[f64]| values.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(" ");
        let Self { kind, width, band, pattern, series } = self;
        format!("{kind} {width} {band}|{}|{}\n", numbers(pattern), numbers(series))
    }

    /// Ours.
    fn answer(&self) -> Vec<f64> {
        let Self { kind, width, band, pattern, series } = *self;
        match kind {
            "mass" => Mass::new(Pattern::new(pattern, true).unwrap(), series.len())
                .distances(series, &|| Ok::<_, ()>(()))
                .unwrap(),
            "raw" => Mass::new(Pattern::new(pattern, false).unwrap(), series.len())
                .distances(series, &|| Ok::<_, ()>(()))
                .unwrap(),
            "pearson" => {
                let distance = Pattern::new(pattern, true).unwrap().distance(series, f64::INFINITY);
                vec![correlation_of(distance, pattern.len())]
            }
            "dtw" => {
                let mut pattern = DtwPattern::new(Pattern::new(pattern, true).unwrap(), band);
                vec![pattern.distance(series, f64::INFINITY)]
            }
            "profile" => {
                let distance = |found: Option<_>| {
                    found.map_or(f64::INFINITY, |found: thalweg_similarity::Neighbour| found.distance)
                };
                profile(series, width).into_iter().map(distance).collect()
            }
            "motifs" => {
                let found = motifs(&profile(series, width), width, 3);
                found
                    .iter()
                    .flat_map(|motif| [motif.indexes[0] as f64, motif.indexes[1] as f64, motif.distance])
                    .collect()
            }
            _ => {
                let found = discords(&profile(series, width), width, 3);
                found.iter().flat_map(|(index, nearest)| [*index as f64, nearest.distance]).collect()
            }
        }
    }
}

fn profile(series: &[f64], width: usize) -> MatrixProfile {
    let task = ProfileTask::new(series, width);
    let mut sum = task.sum();
    (0..task.tiles()).for_each(|tile| sum.take(&task.run(tile)));
    task.finish(&sum)
}

/// Random walks, noise, gaps, constant stretches, a level away from 0 (but not so far that the other side's transforms lose digits).
fn series() -> Vec<Vec<f64>> {
    let mut chance = Chance(42);
    let mut gaps = chance.walk(1500);
    gaps[300] = f64::NAN;
    gaps[700..740].fill(f64::NAN);
    let mut flat = chance.walk(1500);
    flat[400..520].fill(3.0);
    flat[900..1000].fill(-7.5);
    let far = chance.noise(1500).iter().map(|value| value + 100.0).collect();
    let waves: Vec<f64> =
        chance.noise(3000).iter().zip(0..).map(|(noise, step)| noise / 40.0 + (f64::from(step) / 30.0).sin()).collect();
    vec![chance.walk(2000), chance.noise(2000), gaps, flat, far, waves]
}

fn python() -> Option<String> {
    let python = std::env::var("SIMILARITY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python).args(["-c", "import numpy, stumpy, dtaidistance"]).output();
    let is_there = there.is_ok_and(|output| output.status.success());
    if !is_there {
        assert!(std::env::var_os("THALWEG_SIMILARITY_TEST").is_none(), "stumpy is missing, which is required here");
        eprintln!("skipped: {python} has no stumpy, NumPy and dtaidistance");
    }
    is_there.then_some(python)
}

#[test]
fn stumpy_says_the_same() {
    let Some(python) = python() else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle.py");
    let mut child = Command::new(python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut requests = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let all = series();
    let mut compared = 0;
    let mut check = |question: &Question<'_>| {
        requests.write_all(question.line().as_bytes()).unwrap();
        let line = answers.next().unwrap_or_else(|| panic!("Python ended at {}", question.kind)).unwrap();
        let theirs: Vec<f64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let ours = question.answer();
        assert_eq!(ours.len(), theirs.len(), "{} {}", question.kind, question.width);
        for (place, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let is_same = ours == theirs || (ours - theirs).abs() < 1e-9 * (1.0 + theirs.abs());
            // Near nothing the root of rounding is all there is: what was added up is compared.
            let is_nothing = (ours * ours - theirs * theirs).abs() < 1e-9;
            assert!(is_same || is_nothing, "{} {} at {place}: {ours}, and not {theirs}", question.kind, question.width);
        }
        compared += ours.len();
    };
    for series in &all {
        for (width, from) in [(20, 60), (100, 60), (288, 1000)] {
            let pattern = &series[from..from + width];
            if pattern.iter().any(|value| value.is_nan()) {
                continue;
            }
            for kind in ["mass", "raw"] {
                check(&Question { kind, width, band: 0, pattern, series });
            }
            for other in series.windows(width).step_by(331) {
                let moments = moments_of_windows(other, width)[0];
                if moments.is_defined() && !moments.is_constant() {
                    check(&Question { kind: "pearson", width, band: 0, pattern, series: other });
                    check(&Question { kind: "dtw", width, band: width / 10, pattern, series: other });
                }
            }
        }
        for width in [16, 100] {
            // Of constant stretches many are equally near, so that pairs can be chosen in several ways.
            let has_ties = series.windows(width).any(|window| window.iter().all(|value| *value == window[0]));
            let kinds: &[&str] = if has_ties { &["profile"] } else { &["profile", "motifs", "discords"] };
            for kind in kinds {
                check(&Question { kind, width, band: 0, pattern: &[], series });
            }
        }
    }
    assert!(compared > 50_000, "{compared}");
    drop(requests);
    assert!(child.wait().unwrap().success());
}
