//! A conversation as the token ids the model was trained on.
//!
//! The text comes from the model file's own Jinja template. Two things are
//! added to what other servers do: what people and tools wrote cannot become a
//! control token, and the ids of a turn's prompt are a prefix of the next
//! turn's, so that the session's cache is found again. A model whose template
//! knows no tools is told of them in the system message.

use std::fmt::Write as _;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Environment, Error, ErrorKind, Value, context};
use serde_json::Value as Json;

use super::tokenizer::Tokenizer;
use super::vocabulary::Vocabulary;
use super::{LlmError, Message, Role, Tool, ToolCall};

/// Used where a model file has no template.
const CHATML: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const TEMPLATE: &str = "chat";

/// Writes prompts for one model.
pub struct Prompter {
    environment: Environment<'static>,
    tokenizer: Arc<Tokenizer>,
    /// Whether the template itself tells of tools.
    tools_native: bool,
}

impl Prompter {
    /// Takes the template of a vocabulary (ChatML where it has none).
    ///
    /// # Errors
    /// [`LlmError::Model`] for a template that cannot be read.
    pub fn new(vocabulary: &Vocabulary, tokenizer: Arc<Tokenizer>) -> Result<Self, LlmError> {
        let source = vocabulary.chat_template.clone().unwrap_or_else(|| CHATML.to_owned());
        let tools_native = source.contains("tools");
        let mut environment = Environment::new();
        // What transformers sets, and templates are written for.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("only the treatment of spaces differs from the default"));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        let guard = Arc::clone(&tokenizer);
        environment.add_filter("tojson", move |value: Value| -> Value {
            let mut text = String::new();
            dump(&to_json(&value), &mut text);
            Value::from_safe_string(guard.guard(&text).into_owned())
        });
        environment
            .add_template_owned(TEMPLATE, source)
            .map_err(|error| LlmError::Model(format!("{}: chat template: {error}", vocabulary.name)))?;
        Ok(Self { environment, tokenizer, tools_native })
    }

    /// The prompt of the next answer: messages, tools, and the head of the assistant's turn.
    ///
    /// # Errors
    /// [`LlmError::Invalid`] when the template refuses the messages (some want
    /// user and assistant to alternate) or a tool call's arguments are no JSON.
    pub fn ids(&self, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, LlmError> {
        Ok(self.tokenizer.encode_marked(&self.render(messages, tools)?))
    }

    /// The text behind [`ids`](Self::ids), with what people wrote guarded.
    fn render(&self, messages: &[Message], tools: &[Tool]) -> Result<String, LlmError> {
        let mut lines: Vec<Json> = Vec::with_capacity(messages.len());
        for message in messages {
            lines.push(self.line(message)?);
        }
        let mut specs: Vec<Json> = tools.iter().map(spec).collect();
        if !self.tools_native && !specs.is_empty() {
            self.tell(&mut lines, &std::mem::take(&mut specs));
        }
        let messages = Value::from_iter(lines.into_iter().map(|line| Value::from_object(Node(line))));
        let tools = if specs.is_empty() {
            Value::from(())
        } else {
            Value::from_iter(specs.into_iter().map(|spec| Value::from_object(Node(spec))))
        };
        let template = self.environment.get_template(TEMPLATE).expect("added when this was built");
        template.render(context! { messages, tools, add_generation_prompt => true }).map_err(|error| {
            LlmError::Invalid(format!("the chat template refuses the conversation: {error}"))
        })
    }

    fn line(&self, message: &Message) -> Result<Json, LlmError> {
        let text = message.text.expose();
        // Generated text begins right after the head of the turn; a space there
        // would be merged with the head into other ids than those in the cache.
        let text = if message.role == Role::Assistant { text.trim() } else { text };
        let content = self.tokenizer.guard(text).into_owned();
        let calls = message.tool_calls.iter().map(call).collect::<Result<Vec<_>, _>>()?;
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool if self.tools_native => "tool",
            Role::Tool => {
                let content = format!("<tool_response>\n{content}\n</tool_response>");
                return Ok(serde_json::json!({ "role": "user", "content": content }));
            }
        };
        if !self.tools_native && !calls.is_empty() {
            let mut text = content;
            for call in &calls {
                let mut json = String::new();
                dump(&call["function"], &mut json);
                let gap = if text.is_empty() { "" } else { "\n" };
                // Writing to a string cannot fail.
                let _ = write!(text, "{gap}<tool_call>\n{}\n</tool_call>", self.tokenizer.guard(&json));
            }
            return Ok(serde_json::json!({ "role": role, "content": text }));
        }
        let mut line = serde_json::json!({ "role": role, "content": content });
        if !calls.is_empty() {
            // Templates print these two as they are; arguments go through `tojson`, which guards.
            let calls = calls.into_iter().map(|mut call| {
                for text in ["/id", "/function/name"] {
                    if let Some(Json::String(text)) = call.pointer_mut(text) {
                        *text = self.tokenizer.guard(text).into_owned();
                    }
                }
                call
            });
            line["tool_calls"] = calls.collect();
        }
        if let Some(id) = &message.tool_call_id {
            line["tool_call_id"] = Json::String(self.tokenizer.guard(id).into_owned());
        }
        Ok(line)
    }

    /// Tells of the tools in the system message, in the words Qwen was trained on.
    fn tell(&self, lines: &mut Vec<Json>, specs: &[Json]) {
        let mut text = "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>".to_owned();
        for spec in specs {
            let mut json = String::new();
            dump(spec, &mut json);
            text.push('\n');
            text.push_str(&self.tokenizer.guard(&json));
        }
        text.push_str("\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>");
        match lines.first_mut().filter(|line| line["role"] == "system") {
            Some(system) => {
                let told = format!("{}{text}", system["content"].as_str().unwrap_or_default());
                system["content"] = Json::String(told);
            }
            None => lines.insert(0, serde_json::json!({ "role": "system", "content": text.trim_start() })),
        }
    }
}

/// A tool as templates expect it.
fn spec(tool: &Tool) -> Json {
    let mut function = serde_json::json!({ "name": tool.name });
    if let Some(description) = &tool.description {
        function["description"] = Json::String(description.clone());
    }
    function["parameters"] = tool.parameters.clone();
    serde_json::json!({ "type": "function", "function": function })
}

/// A call as templates expect it.
fn call(call: &ToolCall) -> Result<Json, LlmError> {
    let arguments: Json = serde_json::from_str(&call.arguments)
        .map_err(|error| LlmError::Invalid(format!("arguments of tool call {}: {error}", call.id)))?;
    Ok(serde_json::json!({
        "id": call.id,
        "type": "function",
        "function": { "name": call.name, "arguments": arguments },
    }))
}

/// JSON as the template sees it: keys keep their order, which the models were
/// trained on and the engine's own maps would lose.
#[derive(Debug)]
struct Node(Json);

fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => number
            .as_i64()
            .map(Value::from)
            .or_else(|| number.as_u64().map(Value::from))
            .unwrap_or_else(|| Value::from(number.as_f64().unwrap_or(f64::NAN))),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(_) | Json::Object(_) => Value::from_object(Node(json.clone())),
    }
}

impl Object for Node {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.0.is_array() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match &self.0 {
            Json::Object(map) => map.get(key.as_str()?).map(to_value),
            Json::Array(list) => list.get(key.as_usize()?).map(to_value),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match &self.0 {
            Json::Object(map) => {
                Enumerator::Values(map.keys().map(|key| Value::from(key.as_str())).collect())
            }
            Json::Array(list) => Enumerator::Seq(list.len()),
            _ => Enumerator::NonEnumerable,
        }
    }
}

fn to_json(value: &Value) -> Json {
    if let Some(node) = value.downcast_object_ref::<Node>() {
        return node.0.clone();
    }
    if value.is_none() || value.is_undefined() {
        return Json::Null;
    }
    if let Some(text) = value.as_str() {
        return Json::String(text.to_owned());
    }
    // What a template builds itself (rare): its printed form is JSON for numbers and truth values.
    serde_json::from_str(&value.to_string()).unwrap_or_else(|_| Json::String(value.to_string()))
}

/// `json.dumps(x, ensure_ascii=False)` of Python: the spelling the models were trained on.
fn dump(json: &Json, out: &mut String) {
    match json {
        Json::Array(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                dump(item, out);
            }
            out.push(']');
        }
        Json::Object(map) => {
            out.push('{');
            for (index, (key, item)) in map.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                out.push_str(&Json::String(key.clone()).to_string());
                out.push_str(": ");
                dump(item, out);
            }
            out.push('}');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_spelled_as_the_models_know_it() {
        let mut text = String::new();
        let json =
            serde_json::json!({ "b": [1, 2.5, null], "a": { "text": "é \"q\" <tag>\n" }, "empty": {} });
        dump(&json, &mut text);
        assert_eq!(text, r#"{"b": [1, 2.5, null], "a": {"text": "é \"q\" <tag>\n"}, "empty": {}}"#);
    }
}
