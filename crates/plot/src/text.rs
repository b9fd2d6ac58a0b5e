//! Widths of texts, as far as they can be known: a reader of SVG has fonts of its own.

/// About as wide as a text is in a common font without serifs, in pixels; rather more than less.
pub(crate) fn width_px(text: &str, size_px: f64) -> f64 {
    text.chars().map(width_em).sum::<f64>() * size_px
}

fn width_em(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | '!' => 0.3,
        ' ' | 'f' | 't' | 'r' | 'I' | '(' | ')' | '[' | ']' | '/' | '\\' | '-' | '`' => 0.4,
        '"' | '*' | '^' => 0.46,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.97,
        'A'..='Z' | '&' | '<' | '>' | '=' | '+' | '~' | '#' => 0.74,
        '0'..='9' | 'a'..='z' | '_' | '$' | '?' | '{' | '}' => 0.62,
        // Scripts of broad characters.
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ffef}' => 1.05,
        '\u{1f000}'..='\u{3ffff}' => 1.3,
        _ => 0.72,
    }
}

/// The text, or its beginning with three dots where it does not fit. Line breaks are spaces.
pub(crate) fn fitted(text: &str, size_px: f64, room_px: f64) -> String {
    let plain: String = text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    if width_px(&plain, size_px) <= room_px {
        return plain;
    }
    let mut kept = String::new();
    let mut width = width_px("…", size_px);
    for character in plain.chars() {
        width += width_em(character) * size_px;
        if width > room_px {
            break;
        }
        kept.push(character);
    }
    let kept = kept.trim_end();
    if kept.is_empty() { String::new() } else { format!("{kept}…") }
}
