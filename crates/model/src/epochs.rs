//! Names and values of an epoch of a regular database, whose series all have their values at the same moments.

/// Names, one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochNames {
    text: String,
    ends: Vec<usize>,
}

impl EpochNames {
    /// Names that lie one behind the other, and where each ends; `None` if that is not where characters end, one after another.
    pub fn from_parts(text: String, ends: Vec<usize>) -> Option<Self> {
        let is_end = |end: &usize| text.is_char_boundary(*end);
        let is_whole = ends.last().copied().unwrap_or(0) == text.len();
        (is_whole && ends.is_sorted() && ends.iter().all(is_end)).then_some(Self { text, ends })
    }

    /// Appends a name.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// A name by its place.
    pub fn get(&self, place: usize) -> Option<&str> {
        let start = place.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.text.get(start..*self.ends.get(place)?)
    }

    /// All names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| self.text.get(std::mem::replace(&mut start, *end)..*end).unwrap_or_default())
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

impl<'n> FromIterator<&'n str> for EpochNames {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> Self {
        let mut all = Self::default();
        names.into_iter().for_each(|name| all.push(name));
        all
    }
}

/// Values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum EpochColumn {
    /// Integers.
    Int(Vec<i64>),
    /// Floats.
    Float(Vec<f64>),
}

impl EpochColumn {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Int(values) => values.len(),
            Self::Float(values) => values.len(),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
