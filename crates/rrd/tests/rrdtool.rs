//! RRDtool itself beside this crate: the same updates into a file of its own and into the database, then the same questions to both.
//!
//! Needs Debian's package `rrdtool`. Where it is missing the tests say so and pass, unless `THALWEG_RRDTOOL_TEST=required`, as CI sets it.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use thalweg_rrd::catalog::{Catalog, Destination};
use thalweg_rrd::consolidate::{NoSink, Updater};
use thalweg_rrd::fetch::FetchRequest;
use thalweg_rrd::file::{
    Consolidation, Definition, Moment, Reading, read, read_binary, read_xml, write_binary, write_xml,
};
use thalweg_rrd::pattern::Patterns;
use thalweg_rrd::time::Times;
use thalweg_rrd::xport::{Format, Script, Settings, export, write};

use support::{BEGIN_S, Case, Files, Folder, World, assert_text_is_close, is_close, rrdtool};

/// How many random files each comparison makes.
const FILES: u64 = 12;

#[test]
fn updates_in_memory_become_rrdtools_rows() {
    let Some(folder) = Folder::for_rrdtool("memory") else { return };
    for seed in 0..FILES {
        let case = Case::random(seed);
        let path = folder.path(&format!("{seed}.rrd"));
        case.create(&path);
        Case::update(&path, &case.updates);
        let theirs = read_binary(&std::fs::read(&path).unwrap()).unwrap().rrd;
        let mut ours = case.definition().empty_file(Moment::from_seconds(BEGIN_S));
        let mut updater = Updater::new(&ours.sources).unwrap();
        for update in &case.updates {
            let readings: Vec<Reading> = update.readings(&ours.sources);
            updater.update(&mut ours, update.time, &readings, &mut NoSink).unwrap();
        }
        assert_eq!(ours.last_update, theirs.last_update, "seed {seed}");
        for (number, (a, b)) in ours.archives.iter().zip(&theirs.archives).enumerate() {
            for age in 0..a.definition.rows as usize {
                for (source, (x, y)) in a.row(age).unwrap().iter().zip(b.row(age).unwrap()).enumerate() {
                    let name = &ours.sources[source].name;
                    assert!(
                        is_close(*x, *y),
                        "seed {seed} archive {number} {name} age {age}: {x} instead of {y}\n{case:?}"
                    );
                }
            }
        }
        for (a, b) in ours.states.iter().zip(&theirs.states) {
            assert_eq!(a.unknown_s, b.unknown_s, "seed {seed}");
            assert!(is_close(a.value, b.value), "seed {seed}: {} instead of {}", a.value, b.value);
        }
    }
}

/// Asks for every function, several times and resolutions.
fn compare_fetches(world: &World, catalog: &Catalog, name: &str, path: &std::path::Path, last_s: i64) {
    let file = catalog.file("default", name).unwrap();
    for function in Consolidation::ALL {
        for (start_s, end_s) in [
            (BEGIN_S, last_s),
            (last_s - 300, last_s),
            (BEGIN_S - 5_000, BEGIN_S + 2_000),
            (last_s - 7_000, last_s + 999),
        ] {
            for step_s in [1, 100, 3_600] {
                let request = FetchRequest { function, start_s, end_s, step_s };
                let theirs = rrdtool(&[
                    "fetch",
                    path.to_str().unwrap(),
                    function.name(),
                    "-s",
                    &start_s.to_string(),
                    "-e",
                    &end_s.to_string(),
                    "-r",
                    &step_s.to_string(),
                ]);
                let ours = catalog.fetch(&file, &request, &world.budget());
                match (ours, theirs) {
                    (Ok(ours), Ok(theirs)) => {
                        assert_text_is_close(&ours.to_text(), &theirs, &format!("{name} {request:?}"));
                    }
                    (Err(_), Err(_)) => {}
                    (ours, theirs) => panic!("{name} {request:?}: {ours:?} and {theirs:?}"),
                }
            }
        }
    }
}

#[test]
fn updates_in_the_database_are_read_as_rrdtool_reads() {
    let Some(folder) = Folder::for_rrdtool("database") else { return };
    let world = World::open(&folder.path("data"));
    let catalog = world.catalog(Patterns::default());
    for seed in 100..100 + FILES {
        let (case, name) = (Case::random(seed), format!("{seed}.rrd"));
        let path = folder.path(&name);
        case.create(&path);
        Case::update(&path, &case.updates);
        let begin = Moment::from_seconds(BEGIN_S);
        let file = catalog.create("default", &name, case.definition(), (begin, false)).unwrap();
        world.update(&catalog, &file, &case.updates);
        compare_fetches(&world, &catalog, &name, &path, case.last_s());
        // The whole file, in both forms.
        let whole = catalog.export(&file, &world.budget()).unwrap();
        let (binary, xml, restored) = (folder.path("out.rrd"), folder.path("out.xml"), folder.path("restored.rrd"));
        std::fs::write(&binary, write_binary(&whole).unwrap()).unwrap();
        std::fs::write(&xml, write_xml(&whole)).unwrap();
        rrdtool(&["restore", "-f", xml.to_str().unwrap(), restored.to_str().unwrap()]).unwrap();
        for function in Consolidation::ALL {
            let fetch = |path: &std::path::Path| {
                let (start, end) = (BEGIN_S.to_string(), case.last_s().to_string());
                rrdtool(&["fetch", path.to_str().unwrap(), function.name(), "-s", &start, "-e", &end])
            };
            let Ok(expected) = fetch(&path) else { continue };
            assert_text_is_close(&fetch(&binary).unwrap(), &expected, &format!("{seed} direct"));
            assert_text_is_close(&fetch(&restored).unwrap(), &expected, &format!("{seed} restored"));
        }
    }
}

#[test]
fn imported_files_go_on_where_they_were() {
    let Some(folder) = Folder::for_rrdtool("import") else { return };
    let world = World::open(&folder.path("data"));
    let catalog = world.catalog(Patterns::default());
    for seed in 200..200 + FILES {
        let (case, name) = (Case::random(seed), format!("tree/{seed}.rrd"));
        let path = folder.path(&format!("{seed}.rrd"));
        case.create(&path);
        let (first, second) = case.updates.split_at(case.updates.len() / 2);
        Case::update(&path, first);
        let bytes = if seed % 2 == 0 {
            std::fs::read(&path).unwrap()
        } else {
            rrdtool(&["dump", path.to_str().unwrap()]).unwrap().into_bytes()
        };
        let read = read(&bytes).unwrap();
        let to = Destination { database: "default", path: &name, identity: None, replaces: false };
        let (file, report) = catalog.import(&read.rrd, &to, &world).unwrap();
        assert_eq!((report.refused, report.reason), (0, None));
        // Dumps have no microseconds: what comes next is compared from whole files alone.
        compare_fetches(&world, &catalog, &name, &path, first.last().unwrap().time.seconds);
        if seed % 2 == 0 {
            Case::update(&path, second);
            world.update(&catalog, &file, second);
            compare_fetches(&world, &catalog, &name, &path, case.last_s());
        }
    }
    // Files are there after the catalog is read anew.
    let again = world.catalog(Patterns::default());
    assert_eq!(again.paths("default", "tree").len(), FILES as usize);
    let case = Case::random(200);
    compare_fetches(&world, &again, "tree/200.rrd", &folder.path("200.rrd"), case.last_s());
}

#[test]
fn both_forms_of_files_are_read_alike() {
    let Some(folder) = Folder::for_rrdtool("forms") else { return };
    for seed in 300..300 + FILES {
        let case = Case::random(seed);
        let path = folder.path(&format!("{seed}.rrd"));
        case.create(&path);
        Case::update(&path, &case.updates);
        let bytes = std::fs::read(&path).unwrap();
        let binary = read_binary(&bytes).unwrap().rrd;
        let dump = rrdtool(&["dump", path.to_str().unwrap()]).unwrap();
        let xml = read_xml(dump.as_bytes()).unwrap().rrd;
        // Limits that there are not are NaN, which is not equal to itself.
        assert_eq!(format!("{:?}", binary.sources), format!("{:?}", xml.sources), "seed {seed}");
        for (a, b) in binary.archives.iter().zip(&xml.archives) {
            assert_eq!(a.definition, b.definition, "seed {seed}");
            for age in 0..a.definition.rows as usize {
                assert!(a.row(age).unwrap().iter().zip(b.row(age).unwrap()).all(|(x, y)| is_close(*x, *y)));
            }
        }
        // A file that is read and written is the same file; `info` tells all but the rows.
        let copy = folder.path("copy.rrd");
        std::fs::write(&copy, write_binary(&binary).unwrap()).unwrap();
        assert_eq!(read_binary(&std::fs::read(&copy).unwrap()).unwrap().rrd.archives.len(), binary.archives.len());
        let info = |path: &std::path::Path| {
            let text = rrdtool(&["info", path.to_str().unwrap()]).unwrap();
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>().join("\n")
        };
        assert_text_is_close(&info(&copy), &info(&path), &format!("info of {seed}"));
        // What is cut off is an error, not a panic.
        for length in (0..bytes.len()).step_by(97) {
            assert!(read_binary(&bytes[..length]).is_err());
        }
    }
}

#[test]
fn exports_of_columns_are_rrdtools() {
    let Some(folder) = Folder::for_rrdtool("xport") else { return };
    let world = World::open(&folder.path("data"));
    let catalog = world.catalog(Patterns::default());
    let case = Case::for_exports(7);
    let path = folder.path("x.rrd");
    case.create(&path);
    Case::update(&path, &case.updates);
    let begin = Moment::from_seconds(BEGIN_S);
    let file = catalog.create("default", "x.rrd", case.definition(), (begin, false)).unwrap();
    world.update(&catalog, &file, &case.updates);
    let files = Files { catalog: &catalog, world: &world };
    for expression in EXPRESSIONS {
        for (options, times, step_s) in [
            (&["-s", "1700000400", "-e", "1700007200"][..], (1_700_000_400, 1_700_007_200), 0),
            (&["-s", "1700000123", "-e", "1700013333", "--step", "600"][..], (1_700_000_123, 1_700_013_333), 600),
        ] {
            let mut script = vec![
                "DEF:a=x.rrd:gauge:AVERAGE".to_owned(),
                "DEF:b=x.rrd:count:AVERAGE".to_owned(),
                "DEF:m=x.rrd:gauge:MAX:step=300".to_owned(),
                "VDEF:top=a,MAXIMUM".to_owned(),
                "VDEF:p95=a,95,PERCENTNAN".to_owned(),
            ];
            script.extend(expression.split('|').map(str::to_owned));
            script.push("XPORT:a:first".to_owned());
            script.push("XPORT:e:the result".to_owned());
            for is_json in [false, true] {
                let mut arguments = vec!["xport"];
                arguments.extend_from_slice(options);
                arguments.extend(if is_json { ["--json", "-t"] } else { ["--enumds", "-t"] });
                let theirs: Vec<String> = script
                    .iter()
                    .map(|one| one.replace("x.rrd", &path.to_str().unwrap().replace(':', "\\:")))
                    .collect();
                arguments.extend(theirs.iter().map(String::as_str));
                let expected = rrdtool(&arguments).unwrap_or_else(|error| panic!("{expression}: {error}"));
                let (start_s, end_s) = times;
                let times = Times { start_s, end_s };
                let lines: Vec<&str> = script.iter().map(String::as_str).collect();
                let script = Script::parse(&lines, times).unwrap();
                let settings = Settings { times, step_s, rows_max: 400, now_s: 1_700_010_000 };
                let exported = export(&script, settings, &files).unwrap();
                let format = Format { is_json, has_times: true, is_numbered: !is_json };
                assert_text_is_close(&write(&exported, format), &expected, expression);
            }
        }
    }
}

/// What `e` is.
const EXPRESSIONS: [&str; 37] = [
    "CDEF:e=a,b,+",
    "CDEF:e=a,b,ADDNAN",
    "CDEF:e=a,8,*,b,2,/,-",
    "CDEF:e=a,UN,0,a,IF",
    "CDEF:e=a,top,/,100,*",
    "CDEF:e=a,p95,LT,a,UNKN,IF",
    "CDEF:e=a,10,30,LIMIT",
    "CDEF:e=a,b,MAX,a,b,MIN,-",
    "CDEF:e=a,b,MAXNAN,a,b,MINNAN,-",
    "CDEF:e=a,600,TREND",
    "CDEF:e=a,600,TRENDNAN",
    "CDEF:e=b,m,+",
    "CDEF:e=PREV,UN,0,PREV,IF,a,UN,0,a,IF,+",
    "CDEF:e=PREV(a),a,-",
    "CDEF:e=a,DUP,EXC,POP,2,POW,SQRT",
    "CDEF:e=a,SIN,a,COS,ATAN2,RAD2DEG,DEG2RAD",
    "CDEF:e=a,LOG,EXP,FLOOR,a,CEIL,+",
    "CDEF:e=TIME,COUNT,+,STEPWIDTH,-,a,0,*,+",
    "CDEF:e=LTIME,a,0,*,+",
    "CDEF:e=NEWDAY,NEWMONTH,+,NEWYEAR,+,a,0,*,+",
    "CDEF:e=a,b,m,3,AVG",
    "CDEF:e=a,b,m,3,MEDIAN",
    "CDEF:e=a,b,m,1,4,STDEV",
    "CDEF:e=a,b,m,3,SMIN,a,b,m,3,SMAX,+",
    "CDEF:e=a,b,m,3,REV,-,-",
    "CDEF:e=a,b,2,COPY,+,+,+",
    "CDEF:e=a,b,2,INDEX,+,+",
    "CDEF:e=a,DEPTH,+",
    "CDEF:e=a,b,LE,a,b,GE,EQ,a,0,NE,+",
    "CDEF:e=a,17,%,ABS,a,ISINF,+",
    "CDEF:e=INF,a,0,*,+,NEGINF,MAX",
    "CDEF:e=600,300,2,900,a,PREDICT",
    "CDEF:e=600,1200,2,900,a,PREDICTSIGMA",
    "CDEF:e=600,1200,2,900,60,a,PREDICTPERC",
    "CDEF:half=a,2,/|VDEF:mean=half,AVERAGE|CDEF:e=half,mean,-",
    "VDEF:slope=a,LSLSLOPE|VDEF:int=a,LSLINT|VDEF:cor=a,LSLCORREL|CDEF:e=a,POP,slope,COUNT,*,int,+,cor,+",
    "VDEF:sum=a,TOTAL|VDEF:dev=a,STDEV|VDEF:low=a,MINIMUM|VDEF:one=a,FIRST|VDEF:end=a,LAST|VDEF:p=a,50,PERCENT|CDEF:e=a,POP,sum,dev,+,low,+,one,+,end,+,p,+",
];

#[test]
fn series_become_files() {
    let Some(folder) = Folder::for_rrdtool("series") else { return };
    let world = World::open(&folder.path("data"));
    let line = |minute: i64| {
        let time_ns = (BEGIN_S - 20 + minute * 60) * 1_000_000_000;
        format!("load,host=a value={} {time_ns}", minute % 7)
    };
    let lines = (1..=240).map(line).collect::<Vec<_>>().join("\n");
    world.db.write_lines("default", lines.as_bytes()).unwrap();
    let definition =
        Definition::parse(60, &["DS:load:GAUGE:120:0:U", "RRA:AVERAGE:0.5:1:300", "RRA:MAX:0.5:10:30"]).unwrap();
    let matchers = [model::Matcher::new("__name__", model::MatchOp::Equal, "load")];
    let file =
        thalweg_rrd::catalog::export_series((&world.db, "default"), &matchers, &definition, &world.budget()).unwrap();
    let path = folder.path("load.rrd");
    std::fs::write(&path, write_binary(&file).unwrap()).unwrap();
    let (start, end) = (BEGIN_S.to_string(), (BEGIN_S + 14_400).to_string());
    let text = rrdtool(&["fetch", path.to_str().unwrap(), "AVERAGE", "-s", &start, "-e", &end]).unwrap();
    assert!(text.contains("load") && text.contains("6.0000000000e+00") && text.contains("3.0000000000e+00"), "{text}");
    let text = rrdtool(&["fetch", path.to_str().unwrap(), "MAX", "-s", &start, "-e", &end, "-r", "600"]).unwrap();
    assert!(text.contains("6.0000000000e+00") && !text.contains("3.0000000000e+00"), "{text}");
}
