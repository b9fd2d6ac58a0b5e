//! Pictures of plots: golden SVG, any values at all, pixels read back.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

use std::path::Path;

use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::Event;
use thalweg_plot::chart::{Chart, Downsampling, Legend, Point, Series, Style, Theme, Threshold};
use thalweg_plot::unit::Unit;
use thalweg_plot::{PlotError, draw};

const MINUTE_NS: i64 = 60_000_000_000;
const START_NS: i64 = 1_767_225_600_000_000_000;

/// A value each minute; `None` where there is none.
fn series(name: &str, values: &[Option<f64>]) -> Series {
    let points = (0..)
        .zip(values)
        .filter_map(|(minute, value)| Some(Point { time_ns: START_NS + minute * MINUTE_NS, value: (*value)? }));
    Series { name: name.to_owned(), labels: Vec::new(), points: points.collect() }
}

fn hour(values: &[&[Option<f64>]]) -> Chart {
    let mut chart = Chart::new(START_NS, START_NS + 10 * MINUTE_NS);
    (chart.width_px, chart.height_px) = (400, 240);
    chart.step_ns = Some(MINUTE_NS);
    chart.series = values.iter().zip(["a <b>", "c & d", "e"]).map(|(values, name)| series(name, values)).collect();
    chart
}

fn drawn(chart: &Chart) -> thalweg_plot::Picture {
    draw(chart, || Ok::<_, PlotError>(())).unwrap()
}

/// The files in `tests/golden` are what people look at, too.
fn check_golden(name: &str, chart: &Chart) {
    let svg = drawn(chart).svg();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let expected = std::fs::read_to_string(&golden).unwrap_or_default();
    if svg != expected {
        let found = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&found, &svg).unwrap();
        std::fs::write(found.with_extension("png"), drawn(chart).png(2.0).unwrap()).unwrap();
        panic!("{} is not as {}: look at both; if it is right, copy it there", found.display(), golden.display());
    }
}

const LOAD: [Option<f64>; 11] =
    [Some(1.0), Some(2.0), Some(1.5), None, None, Some(3.0), Some(2.5), None, Some(2.0), Some(4.0), Some(3.5)];
const BYTES: [Option<f64>; 11] = [
    Some(1e6),
    Some(2e6),
    Some(2.5e6),
    Some(2e6),
    Some(3e6),
    Some(2e6),
    Some(1e6),
    Some(5e5),
    Some(2e6),
    Some(4e6),
    Some(3e6),
];

#[test]
fn lines_with_gaps_and_a_threshold() {
    let mut chart = hour(&[&LOAD]);
    chart.title = "Load & more".to_owned();
    chart.thresholds = vec![Threshold { value: 3.2, name: "too much".to_owned() }];
    check_golden("lines.svg", &chart);
}

#[test]
fn stacked_bytes_in_the_dark() {
    let mut chart = hour(&[&BYTES, &BYTES]);
    (chart.is_stacked, chart.theme) = (true, Theme::Dark);
    chart.unit = Unit::named("bytes").unwrap();
    chart.legend = Legend::List;
    check_golden("stacked.svg", &chart);
}

#[test]
fn bars_on_a_logarithmic_axis() {
    let mut chart = hour(&[&BYTES, &LOAD]);
    (chart.style, chart.is_logarithmic) = (Style::Bars, true);
    chart.unit = Unit::named("short").unwrap();
    check_golden("bars.svg", &chart);
}

#[test]
fn an_area_within_given_bounds() {
    let mut chart = hour(&[&LOAD]);
    (chart.style, chart.least, chart.greatest) = (Style::Area, Some(1.2), Some(3.0));
    chart.unit = Unit::named("s").unwrap();
    chart.notes = vec!["A remark.".to_owned()];
    check_golden("area.svg", &chart);
}

/// Elements and texts of a well-formed document; every number that says where something is.
fn read_svg(svg: &str) -> (Vec<String>, Vec<(String, f64)>) {
    let mut reader = Reader::from_str(svg);
    reader.config_mut().check_end_names = true;
    let (mut elements, mut places) = (Vec::new(), Vec::new());
    let mut depth = 0;
    loop {
        let event = reader.read_event().unwrap_or_else(|error| panic!("{error}: {svg}"));
        let element = match &event {
            Event::Start(element) => {
                depth += 1;
                element
            }
            Event::Empty(element) => element,
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            Event::Text(_) | Event::GeneralRef(_) => continue,
            Event::Eof => break,
            other => panic!("{other:?}"),
        };
        elements.push(String::from_utf8(element.name().as_ref().to_vec()).unwrap());
        for attribute in element.attributes() {
            let attribute = attribute.unwrap();
            let name = std::str::from_utf8(attribute.key.as_ref()).unwrap().to_owned();
            let value = std::str::from_utf8(&attribute.value).unwrap().to_owned();
            match &*name {
                "x" | "y" | "cx" | "cy" | "width" | "height" | "font-size" | "stroke-width" | "r" => {
                    places.push((name, value.parse().unwrap_or_else(|_| panic!("{value}"))));
                }
                "d" => {
                    let pairs = value.split(['M', 'L', 'Z']).filter(|pair| !pair.is_empty());
                    for pair in pairs {
                        let (x, y) = pair.split_once(' ').unwrap_or_else(|| panic!("{pair} in {value}"));
                        places.push(("x".to_owned(), x.parse().unwrap()));
                        places.push(("y".to_owned(), y.parse().unwrap()));
                    }
                }
                _ => {}
            }
        }
    }
    assert_eq!(depth, 0);
    (elements, places)
}

fn check_places(chart: &Chart, svg: &str) {
    let (elements, places) = read_svg(svg);
    assert_eq!(elements.first().map(String::as_str), Some("svg"));
    assert!(elements.iter().all(|name| ["svg", "title", "rect", "path", "g", "circle", "text"].contains(&&**name)));
    for (name, value) in places {
        let most = match &*name {
            "x" | "cx" | "width" => chart.width_px,
            _ => chart.height_px,
        };
        assert!(value.is_finite() && (0.0..=f64::from(most)).contains(&value), "{name} {value} in {svg}");
    }
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -100.0..100.0,
        1 => Just(0.0),
        1 => Just(-0.0),
        1 => Just(7.0),
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(f64::MAX),
        1 => Just(f64::MIN),
        1 => Just(1e308),
        1 => Just(f64::from_bits(1)),
        1 => Just(f64::MIN_POSITIVE),
        1 => Just(1e16),
        1 => Just(1e16 + 2.0),
        2 => any::<f64>(),
    ]
}

fn any_series() -> impl Strategy<Value = Series> {
    let point = || (-5_i64..70, any_value());
    let points = prop_oneof![prop::collection::vec(point(), 0..3), prop::collection::vec(point(), 0..200)];
    (".{0,12}", points).prop_map(|(name, points)| {
        let mut points: Vec<Point> = points
            .into_iter()
            .map(|(minute, value)| Point { time_ns: START_NS + minute * MINUTE_NS / 6, value })
            .collect();
        points.sort_by_key(|point| point.time_ns);
        Series { name, labels: Vec::new(), points }
    })
}

fn any_chart() -> impl Strategy<Value = Chart> {
    let looks = (0..3_usize, 0..3_usize, 0..3_usize, any::<bool>(), any::<bool>());
    let sizes = (120..500_u32, 60..400_u32);
    let units = prop::sample::select(vec!["none", "short", "bytes", "s", "ms", "percentunit", "sci", "volt", "ns"]);
    let bounds = (prop::option::of(any_value()), prop::option::of(any_value()));
    let all = prop::collection::vec(any_series(), 0..12);
    (all, looks, sizes, units, bounds, prop::option::of(any_value()), "\\PC{0,20}").prop_map(
        |(
            all,
            (style, legend, method, is_stacked, is_logarithmic),
            (width, height),
            unit,
            (least, greatest),
            threshold,
            title,
        )| {
            let mut chart = Chart::new(START_NS, START_NS + 10 * MINUTE_NS);
            (chart.series, chart.title) = (all, title);
            chart.style = [Style::Line, Style::Area, Style::Bars][style];
            chart.legend = [Legend::Table, Legend::List, Legend::None][legend];
            chart.downsampling = [Downsampling::MinMax, Downsampling::Lttb, Downsampling::None][method];
            (chart.is_stacked, chart.is_logarithmic) = (is_stacked, is_logarithmic);
            (chart.width_px, chart.height_px) = (width, height);
            chart.unit = Unit::named(unit).unwrap();
            (chart.least, chart.greatest) = (least, greatest);
            chart.thresholds.extend(threshold.map(|value| Threshold { value, name: "<&>".to_owned() }));
            chart
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever values are: well-formed XML with finite places within the picture, or an error.
    #[test]
    fn any_values_give_a_well_formed_picture(chart in any_chart()) {
        match draw(&chart, || Ok::<_, PlotError>(())) {
            Ok(picture) => check_places(&chart, &picture.svg()),
            Err(error) => prop_assert!(chart.check().is_err(), "{error}"),
        }
    }

    /// Columns have a value of each series for each time, times in order, and values that the series have.
    #[test]
    fn any_values_give_columns(chart in any_chart()) {
        let Ok(columns) = thalweg_plot::columns::columns(&chart, || Ok::<_, PlotError>(())) else {
            prop_assert!(chart.check().is_err());
            return Ok(());
        };
        prop_assert!(columns.times_ns.windows(2).all(|pair| pair[0] < pair[1]));
        prop_assert_eq!(columns.values.len(), chart.series.len());
        for (values, series) in columns.values.iter().zip(&chart.series) {
            prop_assert_eq!(values.len(), columns.times_ns.len());
            let known: Vec<u64> = series.points.iter().map(|point| point.value.to_bits()).collect();
            prop_assert!(values.iter().all(|value| value.is_nan() || known.contains(&value.to_bits())));
        }
    }
}

/// The pixels of a picture, read back by the decoders.
#[test]
fn pictures_of_pixels_are_read_back() {
    let chart = hour(&[&LOAD]);
    let picture = drawn(&chart);
    let png = picture.png(2.0).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height, info.color_type), (800, 480, png::ColorType::Rgb));
    let webp = picture.webp(2.0).unwrap();
    let mut decoder = image_webp::WebPDecoder::new(std::io::Cursor::new(&webp)).unwrap();
    assert_eq!(decoder.dimensions(), (800, 480));
    let mut same = vec![0; decoder.output_buffer_size().unwrap()];
    decoder.read_image(&mut same).unwrap();
    assert!(pixels == same, "both are without loss");
    // The ground, the line, and letters.
    let count = |wanted: [u8; 3]| pixels.chunks_exact(3).filter(|pixel| **pixel == wanted).count();
    assert!(count([0xff; 3]) > 300_000);
    assert!(count([0x00, 0x72, 0xb2]) > 500, "{}", count([0x00, 0x72, 0xb2]));
    let is_letter = |pixel: &[u8]| pixel.iter().all(|part| *part < 0x80);
    assert!(pixels.chunks_exact(3).filter(|pixel| is_letter(pixel)).count() > 300);
    assert!(png.len() < 60_000 && webp.len() < 60_000, "{} {}", png.len(), webp.len());
}

#[test]
fn limits_are_named() {
    let refused = |change: &dyn Fn(&mut Chart)| {
        let mut chart = hour(&[&LOAD]);
        change(&mut chart);
        draw(&chart, || Ok::<_, PlotError>(())).unwrap_err().to_string()
    };
    for (change, expected) in [
        ((&|chart: &mut Chart| chart.width_px = 10) as &dyn Fn(&mut Chart), "width is between 120 and 8192"),
        (
            &|chart| (chart.width_px, chart.height_px) = (8000, 8000),
            "64000000 pixels; at most 8388608 are drawn (pixels_max)",
        ),
        (&|chart| chart.series = vec![Series::default(); 1001], "1001 series; at most 1000 are drawn (series_max)"),
        (&|chart| chart.end_ns = chart.start_ns, "the end must be after the start"),
        (&|chart| (chart.least, chart.greatest) = (Some(2.0), Some(1.0)), "min is less than max"),
        (&|chart| (chart.is_logarithmic, chart.least) = (true, Some(0.0)), "above 0"),
        (&|chart| (chart.is_logarithmic, chart.is_stacked) = (true, true), "no logarithmic axis"),
    ] {
        let message = refused(change);
        assert!(message.contains(expected), "{message}");
    }
    assert!(drawn(&hour(&[&LOAD])).png(5.0).unwrap_err().to_string().contains("scale is between 1 and 4"));
    let mut chart = hour(&[]);
    chart.downsampling = Downsampling::None;
    let many = Series {
        points: (0..300_000).map(|place| Point { time_ns: START_NS + place, value: 0.0 }).collect(),
        ..Series::default()
    };
    chart.series = vec![many; 7];
    let message = draw(&chart, || Ok::<_, PlotError>(())).unwrap_err().to_string();
    assert!(message.contains("2100000 points; at most 2000000 are drawn (points_max)"), "{message}");
    // Work stops when it is told to.
    let stopped = draw(&hour(&[&LOAD]), || Err(PlotError::Invalid("stopped".to_owned())));
    assert_eq!(stopped.unwrap_err().to_string(), "stopped");
}
