//! Plans: whatever text there is, it is read or refused; what is read prints as something that is read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use thalweg_fuzz as _;

fuzz_target!(|text: &str| {
    if let Ok(plan) = query::parse(text, 1_000_000_000) {
        let printed = plan.to_string();
        assert_eq!(query::parse(&printed, 0).map(|plan| plan.to_string()), Ok(printed));
    }
});
