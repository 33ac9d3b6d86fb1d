"""llama.cpp as the reference (package xllamacpp).

    llama_cpp.py golden STORE OUT    prompts as ids, likeliest next tokens with log-probabilities
    llama_cpp.py speed GGUF THREADS  tokens a second, prompt and decode, one JSON line
"""
import itertools, json, random, sys, time, urllib.request
import xllamacpp

QWEN, SMOL = 'qwen2.5-coder-0.5b-instruct', 'smollm2-135m-instruct'
VOICE = 'You are a friendly voice assistant. Answer in one or two short sentences.'
PLAIN = 'You are a helpful assistant.'
TOOLS = ('You are a helpful assistant.\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n'
         'You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n'
         '{"type": "function", "function": {"name": "get_weather", "description": "Current weather of a city", "parameters": '
         '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}\n</tools>\n\n'
         'For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n'
         '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>')
KINDS = {
    'spoken': (VOICE, ['What is the tallest mountain in Africa?', 'My phone battery drains quickly, what should I do?',
                       'How do I get to sleep faster?', 'Can you explain what inflation is?', 'Is it going to be cold in winter?',
                       'What should I cook for dinner tonight?', 'Who painted the Mona Lisa?', 'How much water should I drink a day?']),
    'tools': (TOOLS, ['What is the weather in Madrid?', 'Is it raining in Oslo now?', 'How warm is it in Cairo?']),
    'list': (PLAIN, ['List eight animals that live in the sea, one per line.', 'Name the months of the year, one per line.']),
    'json': (PLAIN, ['Return a JSON object with title, author and year for a famous novel.', 'Give a JSON array of three cities with name and country.']),
    'code': (PLAIN, ['Write a Python function that reverses a string.', 'Write a JavaScript function that sums an array.']),
    'story': (PLAIN, ['Tell me a short story about a fox and a river.', 'Describe a quiet morning in a small village.']),
}


def server(path, threads=2, context=2048):
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_ctx = context
    p.n_parallel = 1
    p.n_gpu_layers = 0
    p.cpuparams.n_threads = threads
    p.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(p)


def chat(system, user):
    return f'<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n'


def post(s, path, body):
    request = urllib.request.Request(s.listening_address + path, json.dumps(body).encode(), {'Content-Type': 'application/json'})
    return json.load(urllib.request.urlopen(request))


def ids_of(s, text):
    return post(s, '/tokenize', {'content': text, 'add_special': False, 'parse_special': True})['tokens']


def complete(s, ids, n, probs=0):
    return post(s, '/completion', {'prompt': ids, 'n_predict': n, 'temperature': 0.0, 'top_k': 1, 'n_probs': probs,
                                   'cache_prompt': False, 'post_sampling_probs': False, 'ignore_eos': n > 1})


def two_hundred():
    r = random.Random(5)
    who = 'my neighbour,a child,a tourist,a doctor,my boss,an old friend,a student,the driver'.split(',')
    things = 'a bicycle,the moon,coffee,a library,bread,the sea,a passport,rain,a guitar,tea,the train,a garden,snow,honey,a lamp'.split(',')
    asks = ['What is {a}?', 'How do I describe {a} to {w}?', 'Why do people like {a}?', 'Where can I find {a}?',
            'What is {n} plus {m}?', 'Write one line of Python that prints {n}.', 'Say {n} in French.', 'Is {a} older than {b}?',
            'Give me three words about {a}.', 'Return JSON with the keys name and price for {a}.', 'Can {w} use {a} with {b}?',
            'Translate "{a} and {b}" to Spanish.', 'What would {w} say about {b}?', 'Count from {m} to {n}.', 'Tell {w} a joke about {a}.']
    out = []
    while len(out) < 200:
        q = asks[len(out) % len(asks)].format(a=r.choice(things), b=r.choice(things), w=r.choice(who), n=r.randint(10, 99), m=r.randint(1, 9))
        if q not in out:
            out.append(q)
    return out


def golden(store, out):
    for name in (QWEN, SMOL):
        s = server(f'{store}/{name}/model.gguf')
        texts = [chat(VOICE, 'What is the capital of Portugal?'), chat(PLAIN, 'Write a haiku about 3 green apples, please.'),
                 'The quick brown fox jumps over the lazy dog. 12345 + 67 =', 'fn main() {\n    let x = vec![1, 2, 3];\n', 'Ünïcödé \u4f60\u597d \u00a1Hola! ' * 6]
        cases = []
        for t in texts:
            ids = ids_of(s, t)
            r = complete(s, ids, 1, 12)
            if not r.get('completion_probabilities'):
                continue  # it ends here, and says nothing of the alternatives
            top = r['completion_probabilities'][0]['top_logprobs']
            cases.append(dict(ids=ids, top=[[x['id'], round(x['logprob'], 4)] for x in top]))
        json.dump(dict(model=name, by='llama.cpp, package xllamacpp ' + xllamacpp.__version__, cases=cases),
                  open(f'{out}/{name}.logits.json', 'w'))
        if name == QWEN:
            kinds = {k: [ids_of(s, chat(sy, q)) for q in qs] for k, (sy, qs) in KINDS.items()}
            many = [ids_of(s, chat(VOICE, q)) for q in two_hundred()]
            n = len(list(itertools.takewhile(lambda c: len(set(c)) == 1, zip(*many))))
            json.dump(dict(kinds=kinds, system=many[0][:n], questions=[m[n:] for m in many]), open(f'{out}/prompts.json', 'w'))


def speed(path, threads):
    s = server(path, int(threads))
    prompt = ids_of(s, 'The house stands by the river. ' * 40)[:128]
    complete(s, prompt[:8], 4)
    res = []
    for _ in range(2):
        c0 = time.process_time()
        r = complete(s, prompt[:32], 48)
        t = r['timings']
        decode = t['predicted_per_second']
        r = complete(s, prompt, 1)
        res.append((decode, r['timings']['prompt_per_second'], time.process_time() - c0))
    print(json.dumps(dict(decode=max(r[0] for r in res), prompt=max(r[1] for r in res))))


if __name__ == '__main__':
    {'golden': golden, 'speed': speed}[sys.argv[1]](*sys.argv[2:])
