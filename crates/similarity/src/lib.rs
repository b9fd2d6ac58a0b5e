//! Likeness of series: slices of numbers in, matches out. No series' names, no time, no threads, no I/O.
//!
//! * `moments`: mean and deviation of a stretch, and of every window of a series
//! * `pattern`: what is looked for, and its exact distance to a window · `best`: the k smallest distances
//! * `mass`: the distances of a pattern to every window, by Fourier transforms (Mueen's MASS) · `select`: the best of them with a zone around each
//! * `dtw`: dynamic time warping within a band, and its lower bounds
//! * `profile`: the nearest neighbour of every window of a series (matrix profile), motifs and discords
//! * `spectrum`: a bound from a few Fourier coefficients
//! * `groups`: series of which every two correlate
//!
//! # Definitions
//!
//! As stumpy has them. A stretch is normalised by taking its mean away and dividing by its deviation (of the whole population). The distance of two stretches
//! of `m` values is the Euclidean one of what that gives; `d² = 2m (1 - r)`, where `r` is Pearson's correlation. The distance of two constant stretches is 0,
//! that of a constant one and another is `√m`. A stretch with a value that is not finite (NaN stands for a missing one) has no distance: it is
//! written as infinity.
#![allow(clippy::float_cmp, reason = "stretches are constant, and distances infinite, by their bits")]

mod best;
mod dtw;
mod groups;
mod mass;
mod moments;
mod pattern;
mod profile;
mod select;
mod spectrum;

pub use best::{Best, Match};
pub use dtw::{DtwPattern, dtw};
pub use groups::{MEMBERS_MAX, groups, matrix_bytes};
pub use mass::Mass;
pub use moments::{Moments, moments_of_windows};
pub use pattern::{Pattern, correlation_of, distance_of};
pub use profile::{MatrixProfile, Motif, Neighbour, ProfileSum, ProfileTask, TileResult, discords, motifs};
pub use select::{exclusion_zone, select};
pub use spectrum::{Spectra, Spectrum};
