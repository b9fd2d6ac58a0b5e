//! Sizes in bytes with units, in flags, environment and file alike.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};

/// Reads a size in bytes: a number, or one with KiB, MiB, GiB or TiB, or with kB, MB, GB or TB.
pub(crate) fn size_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|symbol: char| symbol.is_ascii_alphabetic());
    let unit_bytes: u64 = match text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        unit => return Err(format!("{unit} is not a unit of sizes: use KiB, MiB, GiB or TiB")),
    };
    let number: u64 = digits.trim().parse().map_err(|_| format!("{text:?} is not a size such as 512MiB or 2GiB"))?;
    number.checked_mul(unit_bytes).ok_or_else(|| format!("{text} is too large"))
}

/// Reads a size for a setting of any width.
pub(crate) fn size<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    T::try_from(size_bytes(text)?).map_err(|_| format!("{text} is too large"))
}

/// Reads a size of a settings file: a number of bytes, or a text with a unit.
pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: TryFrom<u64>>(deserializer: D) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_any(SizeVisitor(PhantomData)).map(Some)
}

struct SizeVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for SizeVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a size, such as 1048576 or \"512MiB\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let number = u64::try_from(number).map_err(|_| E::custom("a size is not negative"))?;
        self.visit_u64(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::try_from(number).map_err(|_| E::custom(format!("{number} is too large")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        size(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(size_bytes(text).ok(), expected, "{text}");
        check("1", Some(1));
        check("512KiB", Some(512 << 10));
        check("16GiB", Some(16 << 30));
        check("16 TiB", Some(16 << 40));
        check("2gib", Some(2 << 30));
        check("1GB", Some(1_000_000_000));
        check("1XB", None);
        check("-1", None);
        check("1.5GiB", None);
        check("99999999999TiB", None);
        check("", None);
    }
}
