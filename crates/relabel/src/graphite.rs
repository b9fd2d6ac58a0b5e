//! VictoriaMetrics's patterns of Graphite's names: `*` stands for anything without a dot, and labels are made of what stars stand for.

/// A pattern, cut at its stars.
#[derive(Debug, Clone)]
pub(super) struct Pattern(Vec<String>);

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let literals: Vec<String> = text.split('*').map(str::to_owned).collect();
        if literals.iter().skip(1).rev().skip(1).any(String::is_empty) {
            return Err(format!("match {text:?} has two stars side by side"));
        }
        Ok(Self(literals))
    }

    /// The whole and what each star stands for; `None` if the name does not match.
    pub(super) fn parts(&self, name: &str) -> Option<Vec<String>> {
        let (first, others) = self.0.split_first()?;
        let mut rest = name.strip_prefix(first.as_str())?;
        let mut parts = vec![name.to_owned()];
        for (index, literal) in others.iter().enumerate() {
            let is_last = index + 1 == others.len();
            let end = match (literal.is_empty(), is_last) {
                (true, _) => rest.len(),
                (false, true) => rest.len().checked_sub(literal.len()).filter(|_| rest.ends_with(literal.as_str()))?,
                (false, false) => rest.find(literal.as_str())?,
            };
            let part = rest.get(..end).filter(|part| !part.contains('.'))?;
            parts.push(part.to_owned());
            rest = rest.get(end + literal.len()..)?;
        }
        rest.is_empty().then_some(parts)
    }
}

/// A template with `$1` and `${1}` filled in.
pub(super) fn fill(template: &str, parts: &[String]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(start) = rest.find('$') {
        out.push_str(rest.get(..start).unwrap_or_default());
        let behind = rest.get(start + 1..).unwrap_or_default();
        let braced = behind.strip_prefix('{');
        let digits = braced.unwrap_or(behind);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        let number = digits.get(..length).and_then(|digits| digits.parse::<usize>().ok());
        let skipped = usize::from(braced.is_some()) * 2 + length;
        match number.and_then(|number| parts.get(number)) {
            Some(part) if braced.is_none() || digits.as_bytes().get(length) == Some(&b'}') => {
                out.push_str(part);
                rest = behind.get(skipped..).unwrap_or_default();
            }
            _ => {
                out.push('$');
                rest = behind;
            }
        }
    }
    out + rest
}
