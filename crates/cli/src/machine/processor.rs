//! Whether this processor has the instructions that the program was built with.
//!
//! Programs for x86-64 are built for its third level (`.cargo/config.toml`), because vectors of four values make packing and unpacking a third faster
//! (`docs/decisions/0008-vectors-of-four.md`). A processor without them would end the program by a signal that does not say why.

/// What leaves of the instruction `CPUID` say, as far as the third level asks for it.
#[cfg(any(test, target_arch = "x86_64"))]
#[derive(Debug, Clone, Copy)]
struct Features {
    /// Leaf 1, register ECX.
    basic: u32,
    /// Leaf 7, register EBX.
    extended: u32,
    /// Leaf 8000 0001, register ECX.
    of_amd: u32,
}

#[cfg(any(test, target_arch = "x86_64"))]
impl Features {
    /// The third level's instructions that are missing (Intel's manual, volume 2, `CPUID`; the psABI for x86-64, table of levels).
    fn missing(self) -> Vec<&'static str> {
        let wanted = [
            (self.basic, 12, "FMA"),
            (self.basic, 22, "MOVBE"),
            (self.basic, 27, "OSXSAVE"),
            (self.basic, 28, "AVX"),
            (self.basic, 29, "F16C"),
            (self.extended, 3, "BMI1"),
            (self.extended, 5, "AVX2"),
            (self.extended, 8, "BMI2"),
            (self.of_amd, 5, "LZCNT"),
        ];
        wanted.into_iter().filter(|(register, bit, _)| register >> bit & 1 == 0).map(|(.., name)| name).collect()
    }
}

/// The message for a start on a processor that is too old for this program.
pub(crate) fn complaint() -> Option<String> {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    {
        use core::arch::x86_64::__cpuid_count as ask;
        let leaves = (ask(0, 0).eax, ask(0x8000_0000, 0).eax);
        let features = Features {
            basic: ask(1, 0).ecx,
            extended: if leaves.0 < 7 { 0 } else { ask(7, 0).ebx },
            of_amd: if leaves.1 < 0x8000_0001 { 0 } else { ask(0x8000_0001, 0).ecx },
        };
        let missing = features.missing();
        (!missing.is_empty()).then(|| message(&missing))
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
    None
}

#[cfg(any(test, target_arch = "x86_64"))]
fn message(missing: &[&str]) -> String {
    format!(
        "this program was built for processors with AVX2 (x86-64-v3), and this one has no {}; build it for this one with \
         RUSTFLAGS='-C target-cpu=native' cargo build --release",
        missing.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers of a Haswell of 2013, of an Ivy Bridge of 2012, and of a processor that knows nothing.
    #[test]
    fn old_processors_are_told_apart() {
        let haswell = Features { basic: 0x7ffa_fbbf, extended: 0x0000_27ab, of_amd: 0x21 };
        assert_eq!(haswell.missing(), [""; 0]);
        let ivy_bridge = Features { basic: 0x7fba_e3ff, extended: 0x0000_0281, of_amd: 0x1 };
        assert_eq!(ivy_bridge.missing(), ["FMA", "MOVBE", "BMI1", "AVX2", "BMI2", "LZCNT"]);
        assert_eq!(Features { basic: 0, extended: 0, of_amd: 0 }.missing().len(), 9);
        assert!(message(&ivy_bridge.missing()).contains("no FMA, MOVBE, BMI1, AVX2, BMI2, LZCNT; build"));
    }

    #[test]
    fn the_processor_that_runs_this_is_new_enough() {
        assert_eq!(complaint(), None);
    }
}
