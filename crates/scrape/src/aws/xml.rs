//! XML as far as answers of APIs have it: elements and texts. Attributes are passed over.

/// How deep elements may be in one another.
const DEPTH_MAX: usize = 64;

/// An element.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Element {
    name: String,
    text: String,
    children: Vec<Element>,
}

impl Element {
    /// The child of this name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of the child of this name; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.child(name).map_or("", |child| child.text.trim())
    }

    /// The children of the child of this name.
    pub fn items(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.child(name).into_iter().flat_map(|child| &child.children)
    }
}

/// Reads a document; its outermost element.
pub fn parse(text: &str) -> Result<Element, String> {
    let mut open: Vec<Element> = Vec::new();
    let mut rest = text;
    loop {
        let (before, behind) = rest.split_once('<').ok_or("the answer is no XML: it ends early")?;
        if let Some(element) = open.last_mut() {
            element.text.push_str(&unescaped(before));
        }
        if let Some(behind) = behind.strip_prefix("!--") {
            rest = behind.split_once("-->").ok_or("the answer is no XML: a comment does not end")?.1;
            continue;
        }
        let (tag, behind) = behind.split_once('>').ok_or("the answer is no XML: a tag does not end")?;
        rest = behind;
        if tag.starts_with(['?', '!']) {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            let element = open.pop().filter(|element| element.name == name.trim());
            let element = element.ok_or("the answer is no XML: an end without its beginning")?;
            match open.last_mut() {
                Some(parent) => parent.children.push(element),
                None => return Ok(element),
            }
            continue;
        }
        let is_empty = tag.ends_with('/');
        let name = tag.trim_end_matches('/').split_whitespace().next().unwrap_or_default();
        let element = Element { name: name.to_owned(), ..Element::default() };
        if !is_empty {
            open.push(element);
            if open.len() > DEPTH_MAX {
                return Err("the answer's elements are nested too deep".to_owned());
            }
            continue;
        }
        match open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => return Ok(element),
        }
    }
}

fn unescaped(text: &str) -> String {
    if !text.contains('&') {
        return text.to_owned();
    }
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#39;", "'"), ("&#34;", "\"")];
    let text = plain.iter().fold(text.to_owned(), |text, (escape, symbol)| text.replace(escape, symbol));
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_texts_are_read() {
        let root = parse("<?xml?><!-- <x> --><a b=\"c\"><d>1 &lt; 2</d><e/><f><i><g>x</g></i><i/></f></a>").unwrap();
        assert_eq!((root.text("d"), root.text("e"), root.text("missing")), ("1 < 2", "", ""));
        assert_eq!(root.items("f").map(|item| item.text("g")).collect::<Vec<_>>(), ["x", ""]);
        for bad in ["", "<a>", "<a></b>", "<a", "text", "</a>", "<!-- "] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&"<a>".repeat(100)).is_err());
    }
}
