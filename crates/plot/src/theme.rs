//! Colours: those of the page.

use crate::chart::Theme;

/// Red, green, blue, and how much covers what is below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Paint {
    pub(crate) rgb: u32,
    pub(crate) opacity: f64,
}

/// The colours of a theme.
#[derive(Debug)]
pub(crate) struct Palette {
    pub(crate) ground: Paint,
    pub(crate) text: Paint,
    pub(crate) muted: Paint,
    pub(crate) grid: Paint,
    pub(crate) axis: Paint,
    pub(crate) threshold: Paint,
    series: [u32; 8],
}

/// Dashes of lines: those of a colour that comes again are not drawn through.
const DASHES: [&[f64]; 3] = [&[], &[6.0, 4.0], &[2.0, 3.0]];

const fn full(rgb: u32) -> Paint {
    Paint { rgb, opacity: 1.0 }
}

/// Series' colours can be told apart with every common colour blindness, also by lightness.
static LIGHT: Palette = Palette {
    ground: full(0xff_ffff),
    text: full(0x1b_2733),
    muted: full(0x5a_6875),
    grid: full(0xe3_e8ed),
    axis: full(0x9a_a6b1),
    threshold: full(0xc6_2828),
    series: [0x00_72b2, 0xd5_5e00, 0x00_9e73, 0xb8_608f, 0xa8_7b00, 0x3d_a5dd, 0x5b_3a9e, 0x5f_6b75],
};

static DARK: Palette = Palette {
    ground: full(0x14_1a20),
    text: full(0xe6_ebf0),
    muted: full(0x9a_a7b3),
    grid: full(0x2a_333c),
    axis: full(0x5c_6873),
    threshold: full(0xff_7b72),
    series: [0x56_b4e9, 0xf0_803c, 0x2b_c49a, 0xe7_9cc5, 0xe6_b422, 0x9f_d8ff, 0xa6_93f0, 0xaa_b6c0],
};

impl Palette {
    pub(crate) const fn for_theme(theme: Theme) -> &'static Self {
        match theme {
            Theme::Light => &LIGHT,
            Theme::Dark => &DARK,
        }
    }

    /// The colour of the n-th series.
    pub(crate) fn series(&self, number: usize) -> Paint {
        let known = self.series.get(number % self.series.len());
        known.map_or(self.text, |rgb| full(*rgb))
    }

    /// The dashes of its line; none: it is drawn through.
    pub(crate) fn dashes(&self, number: usize) -> &'static [f64] {
        DASHES.get(number / self.series.len() % DASHES.len()).copied().unwrap_or_default()
    }
}

impl Paint {
    /// The colour, covering so much.
    pub(crate) const fn covering(self, opacity: f64) -> Self {
        Self { opacity, ..self }
    }
}
