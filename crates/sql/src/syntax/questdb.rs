//! QuestDB's spellings of what the grammar has in others.

use jiff::civil::{Date, DateTime, Time};
use jiff::{ToSpan, Unit};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use super::table_options::TIMESCALE;

/// Tokens that the options of a table may have.
const OPTION_TOKENS_MAX: usize = 200;

/// Tokens in place of those that were read.
pub(super) struct Respelled {
    pub(super) tokens: Vec<Token>,
    pub(super) read: usize,
}

/// The usual spelling of what comes next, where QuestDB has its own; `statement` are the tokens of its statement before it.
pub(super) fn respell(next: &[TokenWithSpan], statement: &[TokenWithSpan]) -> Option<Respelled> {
    let of_table = || {
        table_options(next, statement)
            .or_else(|| super::table_options::respell(next, statement))
            .or_else(|| alter_ttl(next, statement))
    };
    in_interval(next).or_else(|| count_distinct(next)).or_else(of_table)
}

pub(super) fn word_at(tokens: &[TokenWithSpan], place: usize) -> Option<&Word> {
    match tokens.get(place).map(|token| &token.token) {
        Some(Token::Word(word)) => Some(word),
        _ => None,
    }
}

pub(super) fn is_word(tokens: &[TokenWithSpan], place: usize, wanted: &str) -> bool {
    word_at(tokens, place).is_some_and(|word| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// `IN '2020-01-01T09'`, which is `BETWEEN` its first and its last nanosecond.
fn in_interval(next: &[TokenWithSpan]) -> Option<Respelled> {
    if !is_word(next, 0, "in") {
        return None;
    }
    let Some(Token::SingleQuotedString(text)) = next.get(1).map(|token| &token.token) else { return None };
    let (first, last) = interval(text)?;
    let text = |time: DateTime| Token::SingleQuotedString(format!("{time}Z"));
    let tokens = vec![Token::make_keyword("BETWEEN"), text(first), Token::make_keyword("AND"), text(last)];
    Some(Respelled { tokens, read: 2 })
}

/// The first and the last nanosecond of a year, month, day, hour, minute or second, and of as much more as stands after `;`.
fn interval(text: &str) -> Option<(DateTime, DateTime)> {
    let (start, more) = text.split_once(';').map_or((text, None), |(start, more)| (start, Some(more)));
    let start = start.trim().trim_end_matches('Z');
    let (date, time) = start.split_once(['T', ' ']).map_or((start, None), |(date, time)| (date, Some(time)));
    let numbers =
        |text: &str, by: char| text.split(by).map(|part| part.parse::<i16>().ok()).collect::<Option<Vec<_>>>();
    let dates = numbers(date, '-')?;
    let times = time.map_or(Some(Vec::new()), |time| numbers(time, ':'))?;
    let part = |parts: &[i16], place: usize, otherwise: i8| {
        parts.get(place).map_or(Some(otherwise), |part| i8::try_from(*part).ok())
    };
    let day = Date::new(*dates.first()?, part(&dates, 1, 1)?, part(&dates, 2, 1)?).ok()?;
    let clock = Time::new(part(&times, 0, 0)?, part(&times, 1, 0)?, part(&times, 2, 0)?, 0).ok()?;
    let first = day.to_datetime(clock);
    let unit = match (dates.len(), times.len()) {
        (1, 0) => Unit::Year,
        (2, 0) => Unit::Month,
        (3, 0) => Unit::Day,
        (3, 1) => Unit::Hour,
        (3, 2) => Unit::Minute,
        (3, 3) => Unit::Second,
        _ => return None,
    };
    let length = match unit {
        Unit::Year => 1.year(),
        Unit::Month => 1.month(),
        Unit::Day => 1.day(),
        Unit::Hour => 1.hour(),
        Unit::Minute => 1.minute(),
        _ => 1.second(),
    };
    let end = match more {
        None => first.checked_add(length).ok()?,
        Some(more) => {
            let (count, letter) = more.split_at_checked(more.len().checked_sub(1)?)?;
            let count: i64 = count.trim().parse().ok()?;
            let end = first.checked_add(length).ok()?;
            match letter {
                "s" => end.checked_add(jiff::Span::new().try_seconds(count).ok()?),
                "m" => end.checked_add(jiff::Span::new().try_minutes(count).ok()?),
                "h" => end.checked_add(jiff::Span::new().try_hours(count).ok()?),
                "d" => end.checked_add(jiff::Span::new().try_days(count).ok()?),
                "w" => end.checked_add(jiff::Span::new().try_weeks(count).ok()?),
                "M" => end.checked_add(jiff::Span::new().try_months(count).ok()?),
                "y" => end.checked_add(jiff::Span::new().try_years(count).ok()?),
                _ => return None,
            }
            .ok()?
        }
    };
    Some((first, end.checked_sub(1.nanosecond()).ok()?))
}

/// `count_distinct(x)`, which is `count(DISTINCT x)`.
fn count_distinct(next: &[TokenWithSpan]) -> Option<Respelled> {
    let is_call = is_word(next, 0, "count_distinct") && next.get(1).is_some_and(|token| token.token == Token::LParen);
    let tokens = vec![Token::make_word("count", None), Token::LParen, Token::make_keyword("DISTINCT")];
    is_call.then_some(Respelled { tokens, read: 2 })
}

/// What stands after the columns of CREATE TABLE: `TIMESTAMP(ts) PARTITION BY DAY WAL DEDUP UPSERT KEYS(ts, sym)`. A table here has one
/// column of time, is cut by time, and keeps one row for a time and its tags: there is nothing to choose.
fn table_options(next: &[TokenWithSpan], statement: &[TokenWithSpan]) -> Option<Respelled> {
    let is_option = |word: &Word| {
        matches!(word.keyword, Keyword::TIMESTAMP | Keyword::PARTITION)
            || ["wal", "bypass", "dedup", "ttl"].iter().any(|option| word.value.eq_ignore_ascii_case(option))
    };
    word_at(next, 0).filter(|word| is_option(word))?;
    let is_after_columns = statement.last().is_some_and(|token| token.token == Token::RParen);
    if !is_after_columns || !is_word(statement, 0, "create") || !is_word(statement, 1, "table") {
        return None;
    }
    let next = next.get(..OPTION_TOKENS_MAX).unwrap_or(next);
    let end = next.iter().position(|token| matches!(token.token, Token::SemiColon | Token::EOF));
    let options = next.get(..end.unwrap_or(next.len()))?;
    let place_of = |word: &str| (0..options.len()).find(|place| is_word(options, *place, word));
    let rest = |place: usize| options.get(place + 1..).unwrap_or_default();
    let settings = [
        place_of("timestamp").and_then(|place| time_option(rest(place))),
        place_of("ttl").map(|place| ttl_option(rest(place))),
    ];
    let settings: Vec<Vec<Token>> = settings.into_iter().flatten().collect();
    let tokens = match settings.as_slice() {
        [] => Vec::new(),
        settings => {
            let settings = settings.join(&Token::Comma);
            [vec![Token::make_keyword("WITH"), Token::LParen], settings, vec![Token::RParen]].concat()
        }
    };
    Some(Respelled { tokens, read: options.len() })
}

/// The option of the time by which a table is cut, of the column in parentheses after TIMESTAMP.
fn time_option(after: &[TokenWithSpan]) -> Option<Vec<Token>> {
    let mut tokens = after.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    match (tokens.next(), tokens.next()) {
        (Some(Token::LParen), Some(Token::Word(name))) => {
            let option = format!("{TIMESCALE}partition_column");
            Some(vec![Token::make_word(&option, Some('"')), Token::Eq, Token::SingleQuotedString(name.value.clone())])
        }
        _ => None,
    }
}

/// `ttl = '30 DAYS'` of what stands after TTL: a number and a unit, together or apart.
fn ttl_option(after: &[TokenWithSpan]) -> Vec<Token> {
    let mut words = after.iter().map(|token| &token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
    let mut text = words.next().map(ToString::to_string).unwrap_or_default();
    if let (Some(Token::Word(unit)), true) = (words.next(), text != "0") {
        text.push_str(&unit.value);
    }
    vec![Token::make_word("ttl", None), Token::Eq, Token::SingleQuotedString(text)]
}

/// Nanoseconds of a number and a unit from hours to years, as QuestDB spells them; a month has 30 days, a year 365.
pub(crate) fn ttl_ns(text: &str) -> Option<i64> {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let text = text.trim();
    let (count, unit) = text.split_at_checked(text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len()))?;
    let count: i64 = count.parse().ok()?;
    let hours = match unit.trim() {
        // A minute has no letter of its own.
        "M" => 30 * 24,
        unit => match unit.to_ascii_lowercase().as_str() {
            "h" | "hour" | "hours" => 1,
            "d" | "day" | "days" => 24,
            "w" | "week" | "weeks" => 7 * 24,
            "month" | "months" => 30 * 24,
            "y" | "year" | "years" => 365 * 24,
            "" if count == 0 => 0,
            _ => return None,
        },
    };
    count.checked_mul(hours)?.checked_mul(HOUR_NS)
}

/// `ALTER TABLE name SET TTL 30 DAYS`, as a setting that the grammar has.
fn alter_ttl(next: &[TokenWithSpan], statement: &[TokenWithSpan]) -> Option<Respelled> {
    let is_alter = is_word(statement, 0, "alter") && is_word(statement, 1, "table");
    if !is_alter || !is_word(statement, statement.len().checked_sub(1)?, "set") || !is_word(next, 0, "ttl") {
        return None;
    }
    let end = next.iter().position(|token| matches!(token.token, Token::SemiColon | Token::EOF));
    let read = end.unwrap_or(next.len());
    let setting = [vec![Token::LParen], ttl_option(next.get(1..read)?), vec![Token::RParen]];
    Some(Respelled { tokens: setting.concat(), read })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_have_units_from_hours_to_years() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let cases =
            [("7d", 168), ("12 HOURS", 12), ("1w", 168), ("2M", 1440), ("1 month", 720), ("1Y", 8760), ("0", 0)];
        for (text, hours) in cases {
            assert_eq!(ttl_ns(text), Some(hours * HOUR_NS), "{text}");
        }
        for bad in ["", "7", "d", "5m", "1.5d", "-1d", "99999999999y", "forever"] {
            assert_eq!(ttl_ns(bad), None, "{bad}");
        }
    }

    #[test]
    fn intervals_are_what_their_parts_say() {
        for (text, expected) in [
            ("2020", Some("2020-01-01T00:00:00 2020-12-31T23:59:59.999999999")),
            ("2020-02", Some("2020-02-01T00:00:00 2020-02-29T23:59:59.999999999")),
            ("2020-01-31", Some("2020-01-31T00:00:00 2020-01-31T23:59:59.999999999")),
            ("2020-01-01T09", Some("2020-01-01T09:00:00 2020-01-01T09:59:59.999999999")),
            ("2020-01-01T09:30", Some("2020-01-01T09:30:00 2020-01-01T09:30:59.999999999")),
            ("2020-01-01 09:30:05Z", Some("2020-01-01T09:30:05 2020-01-01T09:30:05.999999999")),
            ("2020-01-01;2d", Some("2020-01-01T00:00:00 2020-01-03T23:59:59.999999999")),
            ("2020-01-01T;2d", None),
            ("2020-01-01;1d;7d;3", None),
            ("2020-13", None),
            ("host_1", None),
        ] {
            let found = interval(text).map(|(first, last)| format!("{first} {last}"));
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
