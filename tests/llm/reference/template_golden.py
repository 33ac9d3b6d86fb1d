"""Writes tests/data/llm/prompts.json: conversations rendered by Jinja2 as transformers does it.

    pip install jinja2 gguf
    python tests/llm/reference/template_golden.py ~/.cache/voluble/models
"""

import json
import sys
from pathlib import Path

from gguf import GGUFReader
from jinja2.sandbox import ImmutableSandboxedEnvironment

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city, today's & tomorrow's.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Zürich <or> \"Bern\""},
                                                    "days": {"type": "integer"}}, "required": ["city"]}}}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}


def call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATIONS = [
    ([{"role": "user", "content": "Hello."}], []),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello\nthere."}], []),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."},
      {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Grüezi 你好 👍🏽"}], []),
    ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."},
      {"role": "assistant", "content": "Hello!"}, {"role": "system", "content": "Now be rude."},
      {"role": "user", "content": "Again."}], []),
    ([{"role": "user", "content": "Weather?"}], [WEATHER, TIME]),
    ([{"role": "system", "content": "You speak."}, {"role": "user", "content": "Weather in Zürich?"},
      {"role": "assistant", "content": "", "tool_calls": [call("get_weather", {"city": "Zürich", "days": 2}), call("get_time", {})]},
      {"role": "tool", "content": "{\"c\": 21}"}, {"role": "tool", "content": "12:30"},
      {"role": "assistant", "content": "It is 21 degrees."}, {"role": "user", "content": "Thanks"}], [WEATHER, TIME]),
    ([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": "Let me look.", "tool_calls": [call("get_weather", {"city": "a\"b", "days": 1.5})]},
      {"role": "tool", "content": "rain"}], [WEATHER]),
]


def main():
    store = Path(sys.argv[1]).expanduser()
    out = []
    for model in ("qwen2.5-coder-0.5b-instruct", "smollm2-135m-instruct"):
        source = GGUFReader(store / model / "model.gguf").fields["tokenizer.chat_template"].contents()
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
        template = environment.from_string(source)
        for messages, tools in CONVERSATIONS:
            if model.startswith("smollm2") and (tools or any("tool_calls" in m for m in messages)):
                continue
            text = template.render(messages=messages, tools=tools or None, add_generation_prompt=True)
            out.append({"model": model, "messages": messages, "tools": tools, "text": text})
    path = Path(__file__).parents[2] / "data/llm/prompts.json"
    path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
