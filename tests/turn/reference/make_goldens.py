"""Golden scores of Silero VAD and Smart Turn, from Python's onnxruntime.

Usage: python make_goldens.py PIPECAT_WHEEL_DIR SPEECH_DIR OUT_FILE
Needs numpy, onnxruntime, soundfile; PIPECAT_WHEEL_DIR is the unpacked wheel of
pipecat-ai 1.14.0, whose feature extractor and models are the reference.
"""
import importlib.util, json, pathlib, sys
import numpy as np, onnxruntime as ort, soundfile as sf

wheel, speech, out = map(pathlib.Path, sys.argv[1:4])
spec = importlib.util.spec_from_file_location("f", wheel / "pipecat/audio/turn/smart_turn/_whisper_features.py")
features = importlib.util.module_from_spec(spec)
spec.loader.exec_module(features)
one = ort.SessionOptions()
one.intra_op_num_threads = one.inter_op_num_threads = 1
smart = ort.InferenceSession(str(wheel / "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"), one)
silero = ort.InferenceSession(str(wheel / "pipecat/audio/vad/data/silero_vad.onnx"), one)

# (file, first sample, one past the last sample); None: all of it.
CUTS = [
    ("brooklyn-bridge.wav", 0, None),
    ("brooklyn-bridge.wav", 0, 16000),
    ("go-somewhere.wav", 0, 37120),
    ("isolated-tornadoes-pause.wav", 0, 35000),
    ("isolated-tornadoes-pause.wav", 0, None),
    ("large-hail.wav", 0, 101600),
    ("large-hail.wav", 20000, 60000),
    ("lot-of-writing.wav", 0, None),
    ("not-so-sure.wav", 0, 38000),
    ("one-two-three.wav", 0, 14000),
    ("one-two-three.wav", 0, None),
    ("schools-would-accept.wav", 0, 56000),
    ("testing-routine.wav", 0, 44000),
    ("zh-fangdichan.wav", 0, None),
    ("noise-music.wav", 0, None),
    ("noise-dishes.wav", 100, 140000),
]

def load(name):
    audio, rate = sf.read(speech / name, dtype="float32")
    assert rate == 16000 and audio.ndim == 1, name
    return audio

def completion(audio):
    audio = audio[-128000:]
    audio = np.pad(audio, (128000 - len(audio), 0))
    mel = features.compute_whisper_log_mel_features(audio, do_normalize=True)
    probability = smart.run(None, {"input_features": mel[None]})[0].reshape(-1)[0].item()
    probes = [[b, f, round(float(mel[b, f]), 6)] for b in (0, 20, 50, 79) for f in (3, 400, 700, 780, 799)]
    return probability, probes

def voice(audio):
    """Scores per frame of 512; the state is forgotten as in pipecat's analyzer."""
    state, context, scores, since, quiet = np.zeros((2, 1, 128), "f"), np.zeros(64, "f"), [], 0, 0
    for at in range(0, len(audio) - 511, 512):
        x = np.concatenate([context, audio[at:at + 512]])
        p, state = silero.run(None, {"input": x[None], "state": state, "sr": np.array(16000, "int64")})
        context = x[-64:]
        p = p.reshape(-1)[0].item()
        scores.append(round(p, 6))
        since, quiet = since + 1, quiet + 1 if p < 0.1 else 0
        if since >= 62 and quiet >= 5:
            state, since = np.zeros_like(state), 0
    return scores

smart_rows = []
for name, start, end in CUTS:
    audio = load(name)[start:end]
    probability, probes = completion(audio)
    smart_rows.append({"file": name, "start": start, "end": start + len(audio), "probability": round(probability, 6), "probes": probes})
    print(f"{probability:.4f} {name} {start} {end}")
voice_rows = [{"file": n, "scores": voice(load(n))} for n in ("isolated-tornadoes-pause.wav", "not-so-sure.wav", "noise-music.wav")]
out.write_text(json.dumps({"completion": smart_rows, "voice": voice_rows}, separators=(",", ":")) + "\n")
