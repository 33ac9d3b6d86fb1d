//! The text side of the real models: ids and prompts against references.

mod answer;
mod prompt;
mod tokens;

use std::sync::OnceLock;

use voluble::llm::tokenizer::Tokenizer;
use voluble::llm::vocabulary::Vocabulary;
use voluble::models::Store;

struct Model {
    vocabulary: Vocabulary,
    tokenizer: Tokenizer,
}

fn load(name: &str) -> Model {
    let path = Store::default().path(name, "model.gguf");
    let vocabulary = Vocabulary::read(&path)
        .unwrap_or_else(|error| panic!("{error} (fetch it with `voluble models pull {name}`)"));
    let tokenizer = Tokenizer::new(&vocabulary).expect("its pre-tokenizer is known");
    Model { vocabulary, tokenizer }
}

fn qwen() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load("qwen2.5-coder-0.5b-instruct"))
}

fn smol() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| load("smollm2-135m-instruct"))
}
