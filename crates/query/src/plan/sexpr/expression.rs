//! Conditions and computations on rows.

use super::read::{Fault, Kind, Node};
use crate::plan::{Expression, Function, Operator};

/// The expression over a row that a node stands for.
pub(super) fn lower(node: &Node) -> Result<Expression, Fault> {
    match &node.kind {
        Kind::Integer(number) => Ok(Expression::Integer(*number)),
        Kind::Float(number) => Ok(Expression::Float(*number)),
        Kind::Duration(ns) => Ok(Expression::Integer(*ns)),
        Kind::Text(text) => Ok(Expression::Text(text.clone())),
        Kind::Symbol(symbol) => atom(node, symbol),
        Kind::List(items) => apply(node, items),
        Kind::Quoted(_) => Err(node.fault("a quoted list has no value in a row")),
    }
}

fn atom(node: &Node, symbol: &str) -> Result<Expression, Fault> {
    match symbol {
        "#TS" => Ok(Expression::Time),
        "#V" => Ok(Expression::Value),
        "true" => Ok(Expression::Bool(true)),
        "false" => Ok(Expression::Bool(false)),
        _ => match symbol.strip_prefix('#').filter(|name| !name.is_empty()) {
            Some(name) => Ok(Expression::Column(name.to_owned())),
            None => Err(node.fault(format!(
                "`{symbol}` is not known here: write #TS for the time, #V for the value, #name for a column, or \"{symbol}\" for a text"
            ))),
        },
    }
}

fn apply(node: &Node, items: &[Node]) -> Result<Expression, Fault> {
    let Some((first, rest)) = items.split_first() else {
        return Err(node.fault("an empty list has no value"));
    };
    let Kind::Symbol(word) = &first.kind else {
        return Err(first.fault(format!("a list begins with what it does, not with {}", first.name())));
    };
    if let Some(make) = [("label", Expression::Label as fn(String) -> Expression), ("column", Expression::Column)]
        .into_iter()
        .find_map(|(name, make)| (name == word).then_some(make))
    {
        return match rest {
            [Node { kind: Kind::Text(name), .. }] => Ok(make(name.clone())),
            _ => Err(node.fault(format!("({word} \"name\") takes one name"))),
        };
    }
    let of = rest.iter().map(lower).collect::<Result<Vec<_>, _>>()?;
    if let Some((_, function)) = Function::NAMED.iter().find(|(name, _)| name == word) {
        return if of.len() == 1 {
            Ok(Expression::Call(*function, of))
        } else {
            Err(node.fault(format!("{word} takes one number, not {}", of.len())))
        };
    }
    let Some((_, operator)) = Operator::NAMED.iter().find(|(name, _)| name == word) else {
        let known: Vec<&str> = Operator::NAMED
            .iter()
            .map(|(name, _)| *name)
            .chain(Function::NAMED.iter().map(|(name, _)| *name))
            .collect();
        return Err(first.fault(format!("`{word}` is not known in a row: there are {} and label", known.join(", "))));
    };
    let (least, most) = operator.takes();
    if of.len() < least || of.len() > most {
        let takes = if least == most { format!("{least}") } else { format!("at least {least}") };
        return Err(node.fault(format!("`{word}` takes {takes}, not {}", of.len())));
    }
    Ok(Expression::Apply(*operator, of))
}
