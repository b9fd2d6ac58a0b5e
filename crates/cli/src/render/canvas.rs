//! Braille characters as a canvas of dots, two a column and four a row.

/// The bits of a character's dots, row by row.
const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// A dot, counted from the upper left corner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dot {
    pub(super) x: i64,
    pub(super) y: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Character {
    dots: u8,
    /// Of the line that was drawn last.
    colour: usize,
}

pub(super) struct Canvas {
    columns: usize,
    characters: Vec<Character>,
}

impl Canvas {
    pub(super) fn new(columns: usize, rows: usize) -> Self {
        Self { columns: columns.max(1), characters: vec![Character::default(); columns.max(1) * rows] }
    }

    fn set(&mut self, dot: Dot, colour: usize) {
        let (Ok(x), Ok(y)) = (usize::try_from(dot.x), usize::try_from(dot.y)) else { return };
        let bit = BITS.get(y % 4).and_then(|row| row.get(x % 2));
        let character = self.characters.get_mut(y / 4 * self.columns + x / 2).filter(|_| x / 2 < self.columns);
        if let (Some(character), Some(bit)) = (character, bit) {
            character.dots |= bit;
            character.colour = colour;
        }
    }

    /// A straight line, both ends included.
    pub(super) fn line(&mut self, from: Dot, to: Dot, colour: usize) {
        let steps = (to.x - from.x).abs().max((to.y - from.y).abs()).max(1);
        for step in 0..=steps {
            let between = |from: i64, to: i64| from + ((to - from) as f64 * step as f64 / steps as f64).round() as i64;
            self.set(Dot { x: between(from.x, to.x), y: between(from.y, to.y) }, colour);
        }
    }

    /// The characters of a row, stretches of one colour painted.
    pub(super) fn row(&self, row: usize, paint: impl Fn(usize, &str) -> String) -> String {
        let characters = self.characters.chunks(self.columns).nth(row).unwrap_or_default();
        let text = |character: &Character| match character.dots {
            0 => ' ',
            dots => char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '),
        };
        let same = |a: &Character, b: &Character| (a.dots == 0, a.colour) == (b.dots == 0, b.colour);
        let mut out = String::new();
        for stretch in characters.chunk_by(same) {
            let drawn: String = stretch.iter().map(text).collect();
            match stretch.first().filter(|first| first.dots != 0) {
                Some(first) => out.push_str(&paint(first.colour, &drawn)),
                None => out.push_str(&drawn),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_in_dots() {
        let mut canvas = Canvas::new(3, 1);
        canvas.line(Dot { x: 0, y: 3 }, Dot { x: 3, y: 0 }, 0);
        canvas.line(Dot { x: 5, y: 0 }, Dot { x: 5, y: 3 }, 1);
        canvas.line(Dot { x: -5, y: 9 }, Dot { x: -1, y: 20 }, 1);
        assert_eq!(canvas.row(0, |_, text| text.to_owned()), "⡠⠊⢸");
        assert_eq!(canvas.row(0, |colour, text| format!("<{colour}{text}>")), "<0⡠⠊><1⢸>");
    }
}
