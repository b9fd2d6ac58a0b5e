//! Pictures as pixels.

use std::io::Cursor;

use tiny_skia::{
    Color, FillRule, LineJoin, Paint as Brush, Path, PathBuilder, Pixmap, Stroke as Pen, StrokeDash, Transform,
};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

use crate::PlotError;
use crate::chart::check_size;
use crate::scene::{Anchor, Picture, Position, Shape, Stroke, Text};
use crate::theme::Paint;

/// The font of all texts: it has Latin, Greek and Cyrillic letters.
const FONT: &[u8] = epaint_default_fonts::UBUNTU_LIGHT;

/// Light letters on a light ground: texts are drawn with a rim of this part of their size.
const RIM: f32 = 0.018;

pub(crate) fn png(picture: &Picture, resolution: f64) -> Result<Vec<u8>, PlotError> {
    let (pixels, width, height) = draw(picture, resolution)?;
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(Cursor::new(&mut out), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(out)
}

pub(crate) fn webp(picture: &Picture, resolution: f64) -> Result<Vec<u8>, PlotError> {
    let (pixels, width, height) = draw(picture, resolution)?;
    let mut out = Vec::new();
    let encoder = image_webp::WebPEncoder::new(Cursor::new(&mut out));
    encoder.encode(&pixels, width, height, image_webp::ColorType::Rgb8).map_err(failed)?;
    Ok(out)
}

fn failed(error: impl std::fmt::Display) -> PlotError {
    PlotError::Encoding(error.to_string())
}

/// Red, green and blue of each pixel, row by row; how many from left to right and from top to bottom.
fn draw(picture: &Picture, resolution: f64) -> Result<(Vec<u8>, u32, u32), PlotError> {
    check_size(picture.width_px, picture.height_px, resolution)?;
    let pixels = |side: u32| (f64::from(side) * resolution).round() as u32;
    let (width, height) = (pixels(picture.width_px), pixels(picture.height_px));
    let pixmap = Pixmap::new(width, height);
    let mut pixmap = pixmap.ok_or_else(|| failed(format!("there is no picture of {width} × {height} pixels")))?;
    pixmap.fill(Color::WHITE);
    let face = Face::parse(FONT, 0).map_err(failed)?;
    let transform = Transform::from_scale(resolution as f32, resolution as f32);
    for shape in &picture.shapes {
        draw_shape(&mut pixmap, shape, &face, transform);
    }
    // Everything stands on a ground that covers.
    let opaque = pixmap.pixels().iter().flat_map(|pixel| [pixel.red(), pixel.green(), pixel.blue()]);
    Ok((opaque.collect(), width, height))
}

fn draw_shape(pixmap: &mut Pixmap, shape: &Shape, face: &Face<'_>, transform: Transform) {
    match shape {
        Shape::Rectangle { at, width_px, height_px, paint } => {
            let corners = [
                *at,
                Position { x: at.x + width_px, y: at.y },
                Position { x: at.x + width_px, y: at.y + height_px },
                Position { x: at.x, y: at.y + height_px },
            ];
            fill(pixmap, outline(&[corners.to_vec()], true), *paint, transform);
        }
        Shape::Lines { runs, stroke } => draw_lines(pixmap, runs, stroke, transform),
        Shape::Polygons { outlines, paint } => fill(pixmap, outline(outlines, true), *paint, transform),
        Shape::Dots { centres, radius_px, paint } => {
            let mut builder = PathBuilder::new();
            for centre in centres {
                builder.push_circle(centre.x as f32, centre.y as f32, *radius_px as f32);
            }
            fill(pixmap, builder.finish(), *paint, transform);
        }
        Shape::Text(text) => draw_text(pixmap, text, face, transform),
    }
}

fn draw_lines(pixmap: &mut Pixmap, runs: &[Vec<Position>], stroke: &Stroke, transform: Transform) {
    let Some(path) = outline(runs, false) else { return };
    let dashes = stroke.dashes.iter().map(|length| *length as f32).collect();
    let pen = Pen {
        width: stroke.width_px as f32,
        line_join: LineJoin::Round,
        dash: StrokeDash::new(dashes, 0.0),
        ..Pen::default()
    };
    pixmap.stroke_path(&path, &brush(stroke.paint), &pen, transform, None);
}

fn outline(runs: &[Vec<Position>], is_closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    for run in runs {
        for (place, point) in run.iter().enumerate() {
            let (x, y) = (point.x as f32, point.y as f32);
            if place == 0 { builder.move_to(x, y) } else { builder.line_to(x, y) }
        }
        if is_closed && !run.is_empty() {
            builder.close();
        }
    }
    builder.finish()
}

fn fill(pixmap: &mut Pixmap, path: Option<Path>, paint: Paint, transform: Transform) {
    if let Some(path) = path {
        pixmap.fill_path(&path, &brush(paint), FillRule::Winding, transform, None);
    }
}

fn brush(paint: Paint) -> Brush<'static> {
    let part = |shift: u32| ((paint.rgb >> shift) & 0xff) as u8;
    let mut brush = Brush::default();
    brush.set_color_rgba8(part(16), part(8), part(0), (paint.opacity * 255.0).round() as u8);
    brush
}

/// Letters on their way into a path: upwards is downwards there.
struct Pencil {
    builder: PathBuilder,
    x: f32,
    y: f32,
    scale: f32,
}

impl Pencil {
    fn position(&self, x: f32, y: f32) -> (f32, f32) {
        (self.x + x * self.scale, self.y - y * self.scale)
    }
}

impl OutlineBuilder for Pencil {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.position(x, y);
        self.builder.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.position(x, y);
        self.builder.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.position(x1, y1), self.position(x, y));
        self.builder.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.position(x1, y1), self.position(x2, y2), self.position(x, y));
        self.builder.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.builder.close();
    }
}

/// The letters of a text and how far each moves the next one; what the font does not have is its sign for that.
fn letters(text: &str, face: &Face<'_>) -> Vec<(GlyphId, f32)> {
    let letter = |character: char| {
        let glyph = face.glyph_index(character).unwrap_or(GlyphId(0));
        (glyph, f32::from(face.glyph_hor_advance(glyph).unwrap_or_default()))
    };
    text.chars().map(letter).collect()
}

fn draw_text(pixmap: &mut Pixmap, text: &Text, face: &Face<'_>, transform: Transform) {
    let scale = text.size_px as f32 / f32::from(face.units_per_em().max(1));
    let letters = letters(&text.content, face);
    let width = letters.iter().map(|(_, advance)| advance).sum::<f32>() * scale;
    let begin = text.at.x as f32
        - match text.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
    let mut pencil = Pencil { builder: PathBuilder::new(), x: begin, y: text.at.y as f32, scale };
    for (glyph, advance) in letters {
        face.outline_glyph(glyph, &mut pencil);
        pencil.x += advance * scale;
    }
    let Some(path) = pencil.builder.finish() else { return };
    let brush = brush(text.paint);
    pixmap.fill_path(&path, &brush, FillRule::Winding, transform, None);
    let rim = Pen { width: text.size_px as f32 * RIM, ..Pen::default() };
    pixmap.stroke_path(&path, &brush, &rim, transform, None);
}
