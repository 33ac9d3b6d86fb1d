"""The official Python SDK, unchanged, against a running server.

    VOLUBLE_URL=http://127.0.0.1:8080 SDK_KEY=... python check.py

Each scenario prints one line; the exit code is 1 when one fails.
"""

import array
import asyncio
import base64
import json
import os
import sys
import traceback
import wave
from pathlib import Path

import openai
from openai import AsyncOpenAI

URL = os.environ["VOLUBLE_URL"].rstrip("/")
KEY = os.environ.get("SDK_KEY", "none")
SPEECH = Path(os.environ["SDK_SPEECH"])
MODEL = "gpt-realtime"
RATE = 24_000
PATIENCE = float(os.environ.get("VOLUBLE_PATIENCE", "120"))


def client(key=KEY):
    return AsyncOpenAI(api_key=key, base_url=f"{URL}/v1", max_retries=0)


def pcm24(name):
    """A recording as 24 kHz PCM16 bytes."""
    with wave.open(str(SPEECH / name)) as file:
        assert file.getsampwidth() == 2 and file.getnchannels() == 1, name
        rate = file.getframerate()
        samples = array.array("h", file.readframes(file.getnframes()))
    count = len(samples) * RATE // rate
    out = array.array("h", bytes(2 * count))
    for i in range(count):
        at = i * rate / RATE
        left = int(at)
        right = min(left + 1, len(samples) - 1)
        out[i] = round(samples[left] + (samples[right] - samples[left]) * (at - left))
    return out.tobytes()


async def speak(connection, audio, tail_seconds=30.0):
    """Sends a recording in real time, then silence, as a microphone does."""
    step = RATE // 50 * 2
    silence = bytes(int(tail_seconds * RATE) * 2)
    stream = bytes(RATE) + audio + silence
    clock = asyncio.get_running_loop()
    start = clock.time()
    for index, at in enumerate(range(0, len(stream), step)):
        piece = base64.b64encode(stream[at : at + step]).decode()
        await connection.input_audio_buffer.append(audio=piece)
        await asyncio.sleep(max(0.0, start + (index + 1) * 0.02 - clock.time()))


class Heard:
    """Everything a connection said, checked as it comes."""

    def __init__(self, connection):
        self.connection = connection
        self.events = []

    async def next(self):
        event = await asyncio.wait_for(self.connection.recv(), PATIENCE)
        if event.type == "error":
            raise AssertionError(f"the server said: {event.error}")
        self.events.append(event)
        return event

    async def until(self, *types):
        while True:
            event = await self.next()
            if event.type in types:
                return event

    def all(self, kind):
        return [event for event in self.events if event.type == kind]

    def index(self, kind):
        return next(i for i, event in enumerate(self.events) if event.type == kind)

    def in_order(self, *types):
        at = [self.index(kind) for kind in types]
        assert at == sorted(at), f"out of order: {list(zip(types, at))}"

    def text(self, kind):
        return "".join(event.delta for event in self.all(kind))

    def audio(self):
        return b"".join(base64.b64decode(event.delta) for event in self.all("response.output_audio.delta"))


async def user_says(connection, text):
    await connection.conversation.item.create(
        item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    )


async def text_turn():
    async with client().realtime.connect(model=MODEL) as connection:
        heard = Heard(connection)
        created = await heard.until("session.created")
        assert created.session.model == MODEL
        assert created.session.audio.input.turn_detection.interrupt_response is True
        await connection.session.update(
            session={"type": "realtime", "output_modalities": ["text"], "instructions": "Answer in one short sentence."}
        )
        updated = await heard.until("session.updated")
        assert updated.session.output_modalities == ["text"]
        await user_says(connection, "What is the capital of France?")
        await connection.response.create(response={"metadata": {"topic": "geography"}})
        done = await heard.until("response.done")
        heard.in_order(
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.done",
        )
        text = heard.text("response.output_text.delta")
        assert text == heard.all("response.output_text.done")[0].text
        assert "Paris" in text, text
        response = done.response
        assert response.status == "completed" and response.status_details is None
        assert response.metadata == {"topic": "geography"}
        assert response.output[0].content[0].text == text
        assert response.usage.input_tokens > 0 and response.usage.output_tokens > 0
        assert response.conversation_id
        return text


async def voice_turn():
    async with client().realtime.connect(model=MODEL) as connection:
        heard = Heard(connection)
        await connection.session.update(
            session={
                "type": "realtime",
                "instructions": "Answer in one short sentence.",
                "audio": {
                    "input": {
                        "format": {"type": "audio/pcm", "rate": 24000},
                        "transcription": {"model": "whisper-1", "language": "en"},
                        "turn_detection": {"type": "server_vad", "silence_duration_ms": 500},
                    }
                },
            }
        )
        await heard.until("session.updated")
        speaking = asyncio.create_task(speak(connection, pcm24("brooklyn-bridge.wav")))
        try:
            done = await heard.until("response.done")
            if not heard.all("conversation.item.input_audio_transcription.completed"):
                await heard.until("conversation.item.input_audio_transcription.completed")
            # A second answer to the same turn would come within this time.
            late = asyncio.get_running_loop().time() + 3
            while (left := late - asyncio.get_running_loop().time()) > 0:
                try:
                    heard.events.append(await asyncio.wait_for(connection.recv(), left))
                except asyncio.TimeoutError:
                    break
        finally:
            speaking.cancel()
        heard.in_order(
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_audio.delta",
            "response.output_audio.done",
            "response.output_item.done",
            "response.done",
        )
        assert len(heard.all("response.created")) == 1, "answered more than once"
        assert len(heard.all("input_audio_buffer.speech_stopped")) == 1
        said = heard.all("conversation.item.input_audio_transcription.completed")[0].transcript
        assert "brooklyn bridge" in said.lower(), said
        assert done.response.status == "completed", done.response
        seconds = len(heard.audio()) / 2 / RATE
        assert seconds > 0.4, f"{seconds} s of sound"
        started = heard.all("input_audio_buffer.speech_started")[0]
        stopped = heard.all("input_audio_buffer.speech_stopped")[0]
        assert 0 <= started.audio_start_ms < stopped.audio_end_ms
        answer = heard.text("response.output_audio_transcript.delta")
        assert answer == heard.all("response.output_audio_transcript.done")[0].transcript
        return f"{said!r} -> {answer!r}, {seconds:.1f} s"


WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather in a city now.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city"}},
        "required": ["city"],
    },
}


async def function_call():
    async with client().realtime.connect(model=MODEL) as connection:
        heard = Heard(connection)
        await connection.session.update(
            session={
                "type": "realtime",
                "output_modalities": ["text"],
                "instructions": "Use the tools to answer. Answer in one short sentence.",
                "tools": [WEATHER],
                "tool_choice": "required",
            }
        )
        await heard.until("session.updated")
        await user_says(connection, "What is the weather in Paris?")
        await connection.response.create()
        done = await heard.until("response.done")
        heard.in_order(
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        )
        call = heard.all("response.function_call_arguments.done")[0]
        arguments = json.loads(call.arguments)
        assert heard.text("response.function_call_arguments.delta") == call.arguments
        assert "paris" in arguments["city"].lower(), arguments
        item = done.response.output[0]
        assert (item.type, item.name, item.status, item.call_id) == (
            "function_call",
            "get_weather",
            "completed",
            call.call_id,
        )
        await connection.conversation.item.create(
            item={
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": json.dumps({"weather": "sunny", "degrees_celsius": 21}),
            }
        )
        await connection.response.create(response={"tool_choice": "none"})
        await heard.until("response.done")
        answer = heard.all("response.output_text.done")[-1].text
        assert any(word in answer.lower() for word in ("sun", "21", "twenty")), answer
        return f"{arguments} -> {answer!r}"


async def barge_in():
    async with client().realtime.connect(model=MODEL) as connection:
        heard = Heard(connection)
        await connection.session.update(
            session={
                "type": "realtime",
                "instructions": "You are a storyteller. Tell long stories of many sentences.",
                "audio": {"input": {"turn_detection": {"type": "server_vad"}}},
            }
        )
        await heard.until("session.updated")
        await user_says(connection, "Tell me a long story about a ship on the sea.")
        await connection.response.create()
        first = await heard.until("response.output_audio.delta")
        speaking = asyncio.create_task(speak(connection, pcm24("testing-routine.wav")))
        try:
            await heard.until("input_audio_buffer.speech_started")
            if not heard.all("response.done"):
                await heard.until("response.done")
            done = heard.all("response.done")[0].response
            if heard.index("input_audio_buffer.speech_started") < heard.index("response.done"):
                assert done.status == "cancelled", done.status
                assert done.status_details.reason == "turn_detected", done.status_details
            await connection.conversation.item.truncate(item_id=first.item_id, content_index=0, audio_end_ms=700)
            truncated = await heard.until("conversation.item.truncated")
            assert truncated.item_id == first.item_id and truncated.audio_end_ms == 700
            await connection.conversation.item.retrieve(item_id=first.item_id)
            item = (await heard.until("conversation.item.retrieved")).item
            whole = heard.text("response.output_audio_transcript.delta")
            kept = item.content[0].transcript or ""
            assert len(kept) < len(whole), (kept, whole)
            # The caller's own turn is answered.
            await heard.until("response.created")
        finally:
            speaking.cancel()
        return f"kept {kept!r} of {len(whole)} characters, {done.status}"


async def manual_turn():
    """Push to talk: commit, then ask."""
    async with client().realtime.connect(model=MODEL) as connection:
        heard = Heard(connection)
        await connection.session.update(
            session={
                "type": "realtime",
                "output_modalities": ["text"],
                "audio": {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}},
            }
        )
        updated = await heard.until("session.updated")
        assert updated.session.audio.input.turn_detection is None
        audio = pcm24("brooklyn-bridge.wav")
        for at in range(0, len(audio), 48_000):
            await connection.input_audio_buffer.append(audio=base64.b64encode(audio[at : at + 48_000]).decode())
        await connection.input_audio_buffer.commit()
        await heard.until("conversation.item.input_audio_transcription.completed")
        heard.in_order("input_audio_buffer.committed", "conversation.item.added", "conversation.item.done")
        assert not heard.all("response.created"), "answered without being asked"
        said = heard.events[-1].transcript
        await connection.response.create()
        await heard.until("response.done")
        return repr(said)


async def out_of_band():
    async with client().realtime.connect(model=MODEL) as connection:
        heard = Heard(connection)
        await connection.response.create(
            response={
                "conversation": "none",
                "output_modalities": ["text"],
                "metadata": {"purpose": "label"},
                "input": [
                    {
                        "type": "message",
                        "role": "user",
                        "content": [{"type": "input_text", "text": "Is the sky blue? Answer yes or no."}],
                    }
                ],
            }
        )
        done = (await heard.until("response.done")).response
        assert done.conversation_id is None and done.metadata == {"purpose": "label"}
        assert not heard.all("conversation.item.added")
        return done.output[0].content[0].text


async def errors_and_ids():
    async with client().realtime.connect(model=MODEL) as connection:
        await connection.recv()
        await connection.response.cancel(event_id="cancel_1")
        while (event := await connection.recv()).type != "error":
            pass
        assert event.error.code == "response_cancel_not_active", event.error
        assert event.error.event_id == "cancel_1"
        await connection.send({"type": "no.such.event", "event_id": "x_1"})
        while (event := await connection.recv()).type != "error":
            pass
        assert event.error.event_id == "x_1" and event.error.type == "invalid_request_error"
        await connection.input_audio_buffer.commit()
        while (event := await connection.recv()).type != "error":
            pass
        assert event.error.code == "input_audio_buffer_commit_empty", event.error
        return "3 errors, 1 session"


async def client_secret():
    secret = await client().realtime.client_secrets.create(
        expires_after={"anchor": "created_at", "seconds": 60},
        session={"type": "realtime", "instructions": "From the secret."},
    )
    assert secret.value.startswith("ek_") and secret.session.instructions == "From the secret."
    async with client(secret.value).realtime.connect(model=MODEL) as connection:
        created = await connection.recv()
        assert created.session.instructions == "From the secret."
    return "opened a session"


async def transcription():
    async with client().realtime.connect(extra_query={"intent": "transcription"}) as connection:
        heard = Heard(connection)
        created = await heard.until("session.created")
        assert created.session.type == "transcription"
        await connection.session.update(
            session={
                "type": "transcription",
                "audio": {
                    "input": {
                        "transcription": {"model": "whisper-1", "language": "en"},
                        "turn_detection": {"type": "server_vad"},
                    }
                },
            }
        )
        speaking = asyncio.create_task(speak(connection, pcm24("go-somewhere.wav")))
        try:
            done = await heard.until("conversation.item.input_audio_transcription.completed")
        finally:
            speaking.cancel()
        assert "do something" in done.transcript.lower(), done.transcript
        assert not heard.all("response.created")
        return repr(done.transcript)


async def wrong_key():
    try:
        async with client("sk-wrong").realtime.connect(model=MODEL):
            raise AssertionError("a wrong key was let in")
    except Exception as error:
        assert "401" in str(error), error
    try:
        await client("sk-wrong").models.list()
        raise AssertionError("a wrong key was let in")
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key"
    return "401"


SCENARIOS = [
    text_turn,
    voice_turn,
    function_call,
    barge_in,
    manual_turn,
    out_of_band,
    errors_and_ids,
    client_secret,
    transcription,
    wrong_key,
]


async def main():
    wanted = sys.argv[1:]
    failed = 0
    for scenario in SCENARIOS:
        name = scenario.__name__
        if wanted and name not in wanted:
            continue
        try:
            result = await asyncio.wait_for(scenario(), PATIENCE * 2)
            print(f"python {openai.__version__}: {name}: ok: {result}", flush=True)
        except Exception:
            failed += 1
            print(f"python {openai.__version__}: {name}: FAILED", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


sys.exit(asyncio.run(main()))
