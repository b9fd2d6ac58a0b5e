//! Series like those of a network: each has its level and the form of its days, which changes a little from day to day, and noise.

use db::EpochNames;

/// Epochs of a day, every five minutes.
pub(super) const DAY: usize = 288;

/// Waves that make up the form of a day.
const WAVES: usize = 3;

/// The name of a series.
pub(super) fn name(number: u32) -> String {
    format!("link{number}")
}

pub(super) fn names(count: u32) -> EpochNames {
    let mut names = EpochNames::default();
    (0..count).for_each(|number| names.push(&name(number)));
    names
}

/// The values of all series, epoch by epoch.
pub(super) struct Traffic {
    state: u64,
    epoch: usize,
    levels: Vec<f32>,
    /// By series: the size of each wave, along its sine and its cosine.
    forms: Vec<[f32; 2 * WAVES]>,
    /// The forms of today.
    today: Vec<[f32; 2 * WAVES]>,
}

impl Traffic {
    pub(super) fn new(count: u32, seed: u64) -> Self {
        let mut state = seed | 1;
        let mut levels = Vec::with_capacity(count as usize);
        let mut forms = Vec::with_capacity(count as usize);
        for _ in 0..count {
            levels.push(100.0 * (chance(&mut state) * 6.0).exp());
            forms.push(std::array::from_fn(|wave| (chance(&mut state) - 0.5) / (1 + wave / 2) as f32));
        }
        Self { state, epoch: 0, levels, today: forms.clone(), forms }
    }

    pub(super) fn next_epoch(&mut self) -> Vec<i64> {
        let Self { state, epoch, levels, forms, today } = self;
        if *epoch % DAY == 0 {
            for (form, today) in forms.iter().zip(today.iter_mut()) {
                *today = form.map(|size| size * (0.8 + 0.4 * chance(state)));
            }
        }
        let turn = (*epoch % DAY) as f32 / DAY as f32 * std::f32::consts::TAU;
        let waves: [f32; 2 * WAVES] = std::array::from_fn(|wave| {
            let turn = turn * (1 + wave / 2) as f32;
            if wave % 2 == 0 { turn.sin() } else { turn.cos() }
        });
        *epoch += 1;
        let value = |(level, today): (&f32, &[f32; 2 * WAVES])| {
            let form: f32 = today.iter().zip(&waves).map(|(size, wave)| size * wave).sum();
            (level * (1.5 + form + 0.3 * (chance(state) - 0.5))).max(0.0) as i64
        };
        levels.iter().zip(today.iter()).map(value).collect()
    }
}

/// A number between 0 and 1.
fn chance(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 40) as f32 / (1u64 << 24) as f32
}

/// A random walk, for matrix profiles.
pub(super) fn walk(count: usize, seed: u64) -> Vec<f64> {
    let (mut state, mut at) = (seed | 1, 0.0);
    let mut step = || {
        at += f64::from(chance(&mut state)) - 0.5;
        at
    };
    (0..count).map(|_| step()).collect()
}
