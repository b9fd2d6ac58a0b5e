//! Running a template, within bounds of steps, bytes and depth.

use super::Expansion;
use super::functions;
use super::parser::{Base, Branch, Node, Operand, Pipe, Templates};
use super::value::Value;

/// How deep templates, branches and parentheses may be in one another while they run.
const DEPTH_MAX: usize = 120;

/// Nodes and commands of one expansion.
const STEPS_MAX: u64 = 200_000;

/// Steps that a query counts as.
const QUERY_STEPS: u64 = 1_000;

/// Bytes of the text and of all values on the way to it.
const BYTES_MAX: usize = 4 << 20;

/// Why a list of nodes ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Break,
    Continue,
}

/// A template that runs.
pub(super) struct Run<'a> {
    templates: &'a Templates,
    expansion: &'a Expansion<'a>,
    variables: Vec<(String, Value)>,
    pub(super) out: String,
    steps: u64,
    bytes: usize,
    depth: usize,
}

impl<'a> Run<'a> {
    pub(super) fn new(templates: &'a Templates, expansion: &'a Expansion<'a>) -> Self {
        Self { templates, expansion, variables: Vec::new(), out: String::new(), steps: 0, bytes: 0, depth: 0 }
    }

    /// Runs a template with a value.
    pub(super) fn template(&mut self, name: &str, dot: &Value) -> Result<(), String> {
        let nodes = self.templates.get(name).ok_or_else(|| format!("template {name:?} not defined"))?;
        let outer = std::mem::replace(&mut self.variables, vec![("$".to_owned(), dot.clone())]);
        let done = self.list(nodes, dot);
        self.variables = outer;
        done.map(|_| ())
    }

    fn step(&mut self, steps: u64) -> Result<(), String> {
        self.steps += steps;
        if self.steps > STEPS_MAX { Err("the template takes too many steps".to_owned()) } else { Ok(()) }
    }

    fn charge(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > BYTES_MAX { Err("the template makes too much text".to_owned()) } else { Ok(()) }
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        self.charge(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    fn list(&mut self, nodes: &'a [Node], dot: &Value) -> Result<Flow, String> {
        if self.depth >= DEPTH_MAX {
            return Err("exceeded maximum template depth".to_owned());
        }
        self.depth += 1;
        let mut flow = Ok(Flow::On);
        for node in nodes {
            flow = self.node(node, dot);
            if flow != Ok(Flow::On) {
                break;
            }
        }
        self.depth -= 1;
        flow
    }

    fn node(&mut self, node: &'a Node, dot: &Value) -> Result<Flow, String> {
        self.step(1)?;
        match node {
            Node::Text(text) => self.write(text)?,
            Node::Action(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.variables.is_empty() {
                    self.write(&value.print())?;
                }
            }
            Node::If(branch) => return self.branch(branch, dot, false),
            Node::With(branch) => return self.branch(branch, dot, true),
            Node::Range(branch) => return self.range(branch, dot),
            Node::Template { name, argument } => {
                let argument = argument.as_ref().map_or(Ok(Value::Nil), |pipe| self.pipe(pipe, dot))?;
                self.template(name, &argument)?;
            }
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::On)
    }

    fn branch(&mut self, branch: &'a Branch, dot: &Value, is_with: bool) -> Result<Flow, String> {
        let scope = self.variables.len();
        let value = self.pipe(&branch.pipe, dot)?;
        let flow = match (value.is_true(), is_with) {
            (true, true) => self.list(&branch.then, &value),
            (true, false) => self.list(&branch.then, dot),
            (false, _) => self.list(&branch.otherwise, dot),
        };
        self.variables.truncate(scope);
        flow
    }

    fn range(&mut self, branch: &'a Branch, dot: &Value) -> Result<Flow, String> {
        let scope = self.variables.len();
        let items: Vec<(Value, Value)> = match self.pipe_value(&branch.pipe, dot)? {
            Value::List(items) => (0..).map(Value::Int).zip(items.iter().cloned()).collect(),
            Value::Labels(map) => map.iter().map(|(name, value)| (Value::text(name), Value::text(value))).collect(),
            Value::Map(map) => map.iter().map(|(name, value)| (Value::text(name), value.clone())).collect(),
            // No loop can be longer.
            Value::Int(count) => {
                (0..count.min(STEPS_MAX as i64 + 1)).map(|at| (Value::Int(at), Value::Int(at))).collect()
            }
            Value::Nil => Vec::new(),
            other => return Err(format!("range can't iterate over {}", other.print())),
        };
        let flow = if items.is_empty() { self.list(&branch.otherwise, dot)? } else { Flow::On };
        for (key, item) in items {
            self.step(1)?;
            self.variables.truncate(scope);
            match branch.pipe.variables.as_slice() {
                [only] => self.set(&branch.pipe, only, item.clone()),
                [first, second] => {
                    self.set(&branch.pipe, first, key);
                    self.set(&branch.pipe, second, item.clone());
                }
                _ => {}
            }
            // Variables of a round end with it.
            let inner = self.variables.len();
            let round = self.list(&branch.then, &item)?;
            self.variables.truncate(inner);
            if round == Flow::Break {
                break;
            }
        }
        self.variables.truncate(scope);
        Ok(flow)
    }

    fn set(&mut self, pipe: &Pipe, name: &str, value: Value) {
        let known = self.variables.iter_mut().rev().find(|(known, _)| known == name);
        match known {
            Some((_, known)) if pipe.is_assignment => *known = value,
            _ => self.variables.push((name.to_owned(), value)),
        }
    }

    /// The value of a pipe; its variables are set.
    fn pipe(&mut self, pipe: &'a Pipe, dot: &Value) -> Result<Value, String> {
        let value = self.pipe_value(pipe, dot)?;
        for name in &pipe.variables {
            self.set(pipe, name, value.clone());
        }
        Ok(value)
    }

    fn pipe_value(&mut self, pipe: &'a Pipe, dot: &Value) -> Result<Value, String> {
        if self.depth >= DEPTH_MAX {
            return Err("exceeded maximum template depth".to_owned());
        }
        self.depth += 1;
        let mut last = None;
        for command in &pipe.commands {
            last = Some(self.command(command, dot, last)?);
        }
        self.depth -= 1;
        Ok(last.unwrap_or(Value::Nil))
    }

    fn command(&mut self, command: &'a [Operand], dot: &Value, last: Option<Value>) -> Result<Value, String> {
        self.step(1)?;
        let Some((first, arguments)) = command.split_first() else { return Ok(Value::Nil) };
        let Base::Function(name) = &first.base else { return self.operand(first, dot) };
        let value = self.call(name, arguments, dot, last)?;
        self.charge(value.size_bytes())?;
        take_fields(value, &first.fields)
    }

    fn call(
        &mut self,
        name: &'static str,
        arguments: &'a [Operand],
        dot: &Value,
        last: Option<Value>,
    ) -> Result<Value, String> {
        if matches!(name, "and" | "or") {
            return self.short_circuit(name, arguments, dot, last);
        }
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            values.push(self.operand(argument, dot)?);
        }
        values.extend(last);
        let failed = |reason: String| format!("error calling {name}: {reason}");
        match (name, values.as_slice()) {
            ("query", [Value::Text(query)]) => {
                self.step(QUERY_STEPS)?;
                (self.expansion.query)(query).map_err(failed)
            }
            ("externalURL", []) => Ok(Value::text(self.expansion.external_url)),
            ("pathPrefix", []) => Ok(Value::text(functions::path_of(self.expansion.external_url))),
            ("now", []) => Ok(Value::Float(self.expansion.time_ms as f64 / 1000.0)),
            ("tmpl", [Value::Text(template), argument]) => {
                let outer = std::mem::take(&mut self.out);
                let done = self.nested(template, argument);
                let text = std::mem::replace(&mut self.out, outer);
                done.map(|()| Value::text(text)).map_err(failed)
            }
            _ => functions::call(name, &values).map_err(failed),
        }
    }

    fn nested(&mut self, name: &str, argument: &Value) -> Result<(), String> {
        if self.depth >= DEPTH_MAX {
            return Err("exceeded maximum template depth".to_owned());
        }
        self.template(name, argument)
    }

    /// `and` and `or` look at their arguments until one decides.
    fn short_circuit(
        &mut self,
        name: &str,
        arguments: &'a [Operand],
        dot: &Value,
        last: Option<Value>,
    ) -> Result<Value, String> {
        let mut value = None;
        for argument in arguments {
            let found = self.operand(argument, dot)?;
            if found.is_true() == (name == "or") {
                return Ok(found);
            }
            value = Some(found);
        }
        last.or(value).ok_or_else(|| format!("wrong number of args for {name}: want at least 1 got 0"))
    }

    fn operand(&mut self, operand: &'a Operand, dot: &Value) -> Result<Value, String> {
        let base = match &operand.base {
            Base::Dot => dot.clone(),
            Base::Variable(name) => {
                let found = self.variables.iter().rev().find(|(known, _)| known == name);
                found.map_or(Value::Nil, |(_, value)| value.clone())
            }
            Base::Constant(value) => value.clone(),
            Base::Function(name) => self.call(name, &[], dot, None)?,
            Base::Pipe(pipe) => self.pipe(pipe, dot)?,
        };
        take_fields(base, &operand.fields)
    }
}

fn take_fields(base: Value, fields: &[String]) -> Result<Value, String> {
    fields.iter().try_fold(base, |value, field| take_field(&value, field))
}

fn take_field(value: &Value, field: &str) -> Result<Value, String> {
    match (value, field) {
        (Value::Labels(map), _) => Ok(Value::text(map.get(field).map_or("", String::as_str))),
        (Value::Map(map), _) => Ok(map.get(field).cloned().unwrap_or(Value::Nil)),
        (Value::Sample(labels, _), "Labels") => Ok(Value::Labels(labels.clone())),
        (Value::Sample(_, number), "Value") => Ok(Value::Float(*number)),
        (Value::Time(time_ms), "Unix") => Ok(Value::Int(time_ms.div_euclid(1000))),
        (Value::Duration(duration_ns), "Seconds") => Ok(Value::Float(*duration_ns as f64 / 1e9)),
        (Value::Nil, _) => Err(format!("nil data; no entry for key {field:?}")),
        _ => Err(format!("can't evaluate field {field} in type {}", value.type_name())),
    }
}
