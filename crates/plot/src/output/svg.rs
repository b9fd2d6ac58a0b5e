//! Pictures as SVG.

use std::fmt::Write;

use crate::scene::{Anchor, Picture, Position, Shape, Stroke, Text};
use crate::theme::Paint;

/// What readers look for, in order; none is loaded.
const FONTS: &str = "system-ui, 'Segoe UI', Ubuntu, Helvetica, Arial, sans-serif";

pub(crate) fn write(picture: &Picture) -> String {
    let (width, height) = (picture.width_px, picture.height_px);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" font-family=\"{FONTS}\">\n<title>"
    );
    push_escaped(&mut out, &picture.description);
    out.push_str("</title>\n");
    for shape in &picture.shapes {
        push_shape(&mut out, shape);
    }
    out.push_str("</svg>\n");
    out
}

fn push_shape(out: &mut String, shape: &Shape) {
    match shape {
        Shape::Rectangle { at, width_px, height_px, paint } => {
            out.push_str("<rect");
            for (name, value) in [("x", at.x), ("y", at.y), ("width", *width_px), ("height", *height_px)] {
                push_attribute(out, name, value);
            }
            push_paint(out, "fill", *paint);
            out.push_str("/>\n");
        }
        Shape::Lines { runs, stroke } => {
            out.push_str("<path d=\"");
            runs.iter().for_each(|run| push_run(out, run));
            out.push_str("\" fill=\"none\"");
            push_stroke(out, stroke);
            out.push_str("/>\n");
        }
        Shape::Polygons { outlines, paint } => {
            out.push_str("<path d=\"");
            for outline in outlines {
                push_run(out, outline);
                out.push('Z');
            }
            out.push('"');
            push_paint(out, "fill", *paint);
            out.push_str("/>\n");
        }
        Shape::Dots { centres, radius_px, paint } => {
            out.push_str("<g");
            push_paint(out, "fill", *paint);
            out.push_str(">\n");
            for centre in centres {
                out.push_str("<circle");
                for (name, value) in [("cx", centre.x), ("cy", centre.y), ("r", *radius_px)] {
                    push_attribute(out, name, value);
                }
                out.push_str("/>\n");
            }
            out.push_str("</g>\n");
        }
        Shape::Text(text) => push_text(out, text),
    }
}

fn push_text(out: &mut String, text: &Text) {
    out.push_str("<text");
    push_attribute(out, "x", text.at.x);
    push_attribute(out, "y", text.at.y);
    push_attribute(out, "font-size", text.size_px);
    match text.anchor {
        Anchor::Start => {}
        Anchor::Middle => out.push_str(" text-anchor=\"middle\""),
        Anchor::End => out.push_str(" text-anchor=\"end\""),
    }
    push_paint(out, "fill", text.paint);
    out.push('>');
    push_escaped(out, &text.content);
    out.push_str("</text>\n");
}

fn push_run(out: &mut String, run: &[Position]) {
    for (place, point) in run.iter().enumerate() {
        out.push(if place == 0 { 'M' } else { 'L' });
        push_number(out, point.x);
        out.push(' ');
        push_number(out, point.y);
    }
}

fn push_stroke(out: &mut String, stroke: &Stroke) {
    push_paint(out, "stroke", stroke.paint);
    push_attribute(out, "stroke-width", stroke.width_px);
    if !stroke.dashes.is_empty() {
        let dashes: Vec<String> = stroke.dashes.iter().map(f64::to_string).collect();
        // Writing to memory does not fail.
        let _ = write!(out, " stroke-dasharray=\"{}\"", dashes.join(" "));
    }
    out.push_str(" stroke-linejoin=\"round\"");
}

fn push_paint(out: &mut String, name: &str, paint: Paint) {
    let _ = write!(out, " {name}=\"#{:06x}\"", paint.rgb);
    if paint.opacity < 1.0 {
        let _ = write!(out, " {name}-opacity=\"{}\"", paint.opacity);
    }
}

fn push_attribute(out: &mut String, name: &str, value: f64) {
    let _ = write!(out, " {name}=\"");
    push_number(out, value);
    out.push('"');
}

/// A number with two digits after the point at most.
fn push_number(out: &mut String, value: f64) {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    out.push_str(if text == "-0" { "0" } else { text });
}

/// Text of an element. Characters that XML does not have become the sign for such.
fn push_escaped(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut out = String::new();
        push_escaped(&mut out, "a<b>&\"'\u{0}\u{1b}\n\u{ffff}é");
        assert_eq!(out, "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}\u{fffd} \u{fffd}é");
    }

    #[test]
    fn numbers_are_short() {
        for (value, expected) in
            [(1.0, "1"), (1.005, "1"), (12.345, "12.35"), (-0.001, "0"), (100.0, "100"), (0.5, "0.5")]
        {
            let mut out = String::new();
            push_number(&mut out, value);
            assert_eq!(out, expected);
        }
    }
}
