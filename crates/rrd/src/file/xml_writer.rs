//! Writes the XML that `rrdtool restore` takes, as `rrdtool dump` does. Values have seventeen digits, so that nothing is lost.

use std::fmt::Write;

use super::{Archive, Rrd, SourceKind};
use crate::number::scientific;

/// Digits after the point of a value: enough to read the same float.
const DIGITS: usize = 17;

/// Bytes of memory that [`write_xml`] takes at most: twice those of the text, which grows by doubling.
pub fn xml_bytes_max(rrd: &Rrd) -> u64 {
    /// A row's time and marks, a value and its marks, and everything else of an archive for a source.
    const BYTES: [usize; 3] = [48, 32, 512];
    let sources = rrd.sources.len();
    let of_archive = |rows: usize| rows * (BYTES[0] + sources * BYTES[1]) + (sources + 1) * BYTES[2];
    let archives = rrd.archives.iter().map(|archive| of_archive(archive.definition.rows as usize));
    2 * (archives.sum::<usize>() + (sources + 2) * BYTES[2]) as u64
}

/// Writes a file as XML.
pub fn write_xml(rrd: &Rrd) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n");
    out.push_str("<!DOCTYPE rrd SYSTEM \"https://oss.oetiker.ch/rrdtool/rrdtool.dtd\">\n");
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!-- Round Robin Database Dump -->\n<rrd>\n\t<version>{:04}</version>\n\t<step>{}</step> <!-- Seconds -->\n\
         \t<lastupdate>{}</lastupdate>\n\n",
        rrd.version.max(3),
        rrd.step_s,
        rrd.last_update.seconds
    );
    push_sources(&mut out, rrd);
    out.push_str("\t<!-- Round Robin Archives -->\n");
    for archive in &rrd.archives {
        push_archive(&mut out, rrd, archive);
    }
    out.push_str("</rrd>\n");
    out
}

fn push_sources(out: &mut String, rrd: &Rrd) {
    for (source, state) in rrd.sources.iter().zip(&rrd.states) {
        let _ = writeln!(out, "\t<ds>\n\t\t<name> {} </name>\n\t\t<type> {} </type>", source.name, source.kind.name());
        let _ = if source.kind == SourceKind::Compute {
            writeln!(out, "\t\t<cdef> {} </cdef>", source.expression)
        } else {
            writeln!(
                out,
                "\t\t<minimal_heartbeat>{}</minimal_heartbeat>\n\t\t<min>{}</min>\n\t\t<max>{}</max>",
                source.heartbeat_s,
                scientific(source.min, DIGITS),
                scientific(source.max, DIGITS)
            )
        };
        let _ = write!(
            out,
            "\n\t\t<!-- PDP Status -->\n\t\t<last_ds>{}</last_ds>\n\t\t<value>{}</value>\n\
             \t\t<unknown_sec> {} </unknown_sec>\n\t</ds>\n\n",
            state.last.spelled(),
            scientific(state.value, DIGITS),
            state.unknown_s
        );
    }
}

fn push_archive(out: &mut String, rrd: &Rrd, archive: &Archive) {
    let definition = &archive.definition;
    let width_s = rrd.width_s(definition);
    let _ = write!(
        out,
        "\t<rra>\n\t\t<cf>{}</cf>\n\t\t<pdp_per_row>{}</pdp_per_row> <!-- {width_s} seconds -->\n\n\
         \t\t<params>\n\t\t<xff>{}</xff>\n\t\t</params>\n\t\t<cdp_prep>\n",
        definition.function.name(),
        definition.points,
        scientific(definition.xff, DIGITS)
    );
    for state in &archive.states {
        let _ = write!(
            out,
            "\t\t\t<ds>\n\t\t\t<primary_value>{}</primary_value>\n\t\t\t<secondary_value>{}</secondary_value>\n\
             \t\t\t<value>{}</value>\n\t\t\t<unknown_datapoints>{}</unknown_datapoints>\n\t\t\t</ds>\n",
            scientific(state.primary, DIGITS),
            scientific(state.secondary, DIGITS),
            scientific(state.value, DIGITS),
            state.unknown_points
        );
    }
    out.push_str("\t\t</cdp_prep>\n\t\t<database>\n");
    let newest_s = rrd.last_update.seconds - rrd.last_update.seconds.rem_euclid(width_s);
    for age in (0..definition.rows as usize).rev() {
        let _ = write!(out, "\t\t\t<!-- {} --> <row>", newest_s - age as i64 * width_s);
        for value in archive.row(age).unwrap_or_default() {
            let _ = write!(out, "<v>{}</v>", scientific(*value, DIGITS));
        }
        out.push_str("</row>\n");
    }
    out.push_str("\t\t</database>\n\t</rra>\n");
}
