"""Writes tests/data/llm/tokens.jsonl: 1,000 mixed strings and their token ids.

The reference is llama.cpp (package xllamacpp), which shares no code with the
tokenizer under test. It lacks Qwen2's NFC normalisation, so Qwen2's strings
are normalised here first.

    pip install xllamacpp==2026.10.11549
    python tests/llm/reference/tokenizer_golden.py ~/.cache/voluble/models

Each line: [text, [ids of Qwen2.5-Coder], [ids of SmolLM2]].
"""

import json
import random
import sys
import unicodedata
import urllib.request
from pathlib import Path

import xllamacpp

WORDS = """the a of to and in is it you that he was for on are with as I his they be at one have this from or had by
hot word but what some we can out other were all there when up use your how said an each she which do their time if
will way about many then them write would like so these her long make thing see him two has look more day could go
come did number sound no most people my over know water than call first who may down side been now find don't I'm
you'll we've they'd O'Brien isn't SHE'LL naïve café résumé Zürich São_Paulo""".split()
SCRIPTS = [
    "Привет, как дела?", "Доброе утро мир", "你好，世界！今天天气怎么样？", "東京は日本の首都です。", "こんにちは",
    "안녕하세요 세계", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Γειά σου Κόσμε",
    "xin chào thế giới", "Grüße aus Köln", "¿Dónde está la biblioteca?", "Ça va très bien, merci", "გამარჯობა",
    "ԲԱՐԵՎ", "ቀን ደህና", "தமிழ் மொழி", "Ελληνικά", "ไทย", "ﬁne ﬂow", "Å Å Å", "e\u0301a\u0300o\u0302", "ｆｕｌｌ ｗｉｄｔｈ １２３",
]
EMOJI = ["😀", "👍🏽", "👩‍💻", "🇫🇷🇩🇪", "❤️", "🏳️‍🌈", "👨‍👩‍👧‍👦", "☕", "1️⃣", "🎉🎉", "™", "→", "€", "½", "²", "Ⅳ"]
CODE = [
    "def f(x):\n    return x**2\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i];\n}", "SELECT * FROM t WHERE id=42;",
    "fn main() { println!(\"{}\", 1_000); }", "<div class=\"a\">&nbsp;</div>", "{\"name\": \"x\", \"arguments\": {\"a\": [1, 2.5]}}",
    "if __name__ == '__main__':\r\n\tpass", "git commit -m 'fix #123'", "a && b || !c ^ ~d", "\t\t\tdeep\n\n\n\nlines   \n",
    "https://example.com/a?b=c&d=%20#e", "user.name+tag@mail.example.org", "C:\\Users\\me\\file.txt", "0xDEADBEEF 1e-9 3.14f",
]
MARKS = [".", ",", "!", "?", "...", "—", "–", ";", ":", "“quoted”", "'single'", "(paren)", "[x]", "&", "%", "$5", "#1", "@me"]
# llama.cpp reads user-defined tokens (<tool_call>) even where it is told to parse none, so they are left out.
TYPED = ["<|im_end|>", "<|im_start|>system", "<tool_calls>", "<|endoftext|>", "<|im_end|", "</tool>"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", " \n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b", "      "]


def number(r):
    return r.choice([
        lambda: str(r.randrange(10)),
        lambda: str(r.randrange(10**r.randrange(1, 12))),
        lambda: f"{r.uniform(0, 1e4):.{r.randrange(4)}f}",
        lambda: f"{r.randrange(1, 1000)},{r.randrange(1000):03},{r.randrange(1000):03}",
        lambda: f"{r.randrange(24)}:{r.randrange(60):02}",
        lambda: f"{r.randrange(1900, 2100)}-{r.randrange(1, 13):02}-{r.randrange(1, 29):02}",
        lambda: f"+{r.randrange(100)} {r.randrange(1000)} {r.randrange(10**6):06}",
        lambda: "".join(chr(0x660 + r.randrange(10)) for _ in range(3)),
    ])()


def odd(r):
    """Any characters at all, without surrogates, noncharacters and what has no character yet."""
    text = ""
    while len(text) < r.randrange(1, 8):
        c = chr(r.choice([r.randrange(0x250), r.randrange(0x3000), r.randrange(0x20000)]))
        if unicodedata.category(c) not in ("Cs", "Cn", "Co"):
            text += c
    return text


def string(r):
    kinds = [
        (8, lambda: r.choice(WORDS)), (3, lambda: number(r)), (2, lambda: r.choice(SCRIPTS)), (2, lambda: r.choice(EMOJI)),
        (2, lambda: r.choice(CODE)), (3, lambda: r.choice(MARKS)), (1, lambda: r.choice(TYPED)), (1, lambda: odd(r)),
        (2, lambda: r.choice(WORDS).upper()), (1, lambda: r.choice(WORDS).capitalize()),
    ]
    weights = [weight for weight, _ in kinds]
    text = r.choice(SPACES) if r.random() < 0.15 else ""
    for _ in range(r.randrange(1, 12)):
        text += r.choices(kinds, weights)[0][1]()
        text += " " if r.random() < 0.7 else r.choice(SPACES) if r.random() < 0.4 else ""
    return text


def reference(model):
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = 512
    params.warmup = False
    params.port = 0
    server = xllamacpp.Server(params)

    def encode(text):
        body = json.dumps({"content": text, "add_special": False, "parse_special": False}).encode()
        request = urllib.request.Request(
            server.listening_address + "/tokenize", data=body, headers={"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens"]

    encode.server = server
    return encode


def main():
    store = Path(sys.argv[1]).expanduser()
    r = random.Random(20_260)
    strings = [*SCRIPTS, *EMOJI, *CODE, *TYPED]
    while len(strings) < 1_000:
        strings.append(string(r))
    qwen = reference(store / "qwen2.5-coder-0.5b-instruct/model.gguf")
    smol = reference(store / "smollm2-135m-instruct/model.gguf")
    out = Path(__file__).parents[2] / "data/llm/tokens.jsonl"
    with out.open("w") as f:
        for text in strings:
            row = [text, qwen(unicodedata.normalize("NFC", text)), smol(text)]
            f.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
