//! One call: streams a recording, notes what comes back and when.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::recording::{Kind, Recording};
use crate::audio::SPEAKING_RATE;
use crate::audio::codec::pcm;

/// How calls reach the server.
#[derive(Clone, Debug)]
pub struct CallOptions {
    /// `ws://host:port/v1/realtime`.
    pub url: String,
    /// API key.
    pub key: Option<String>,
    /// `server_vad` or `semantic_vad`.
    pub turn_detection: String,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server cannot be reached or refused the call.
    #[error("{url}: {reason}; is `voluble serve` running?")]
    Connect {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
    /// The server hung up in the middle.
    #[error("the call was cut: {0}")]
    Cut(String),
}

/// One end of turn as the server saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct End {
    /// Position in the audio sent, seconds.
    pub at: f64,
}

/// What came of a call. Times in seconds since the first sample was spoken.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Ends of turns (`speech_stopped`).
    pub ends: Vec<End>,
    /// Transcripts in order of arrival.
    pub transcripts: Vec<String>,
    /// When each response was created.
    pub created: Vec<f64>,
    /// Responses that ended as completed.
    pub completed: usize,
    /// First audible sample of each response, in order.
    pub audible: Vec<f64>,
    /// `voluble.turn.measured` records.
    pub timelines: Vec<Value>,
    /// Errors that the server sent.
    pub errors: Vec<String>,
    /// What the agent said.
    pub said: String,
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const FRAME: Duration = Duration::from_millis(20);
const FRAME_SAMPLES: usize = SPEAKING_RATE as usize / 50;
/// Sound quieter than this does not count as an answer: -46 dB of full scale.
const AUDIBLE: f32 = 0.005;
/// How long a call waits for an answer after the recording has ended.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long it listens on after the answer: a second answer would come in this time.
const AFTERWARDS: Duration = Duration::from_millis(1500);
/// How long it listens after a recording that must not be answered.
const AFTER_NOISE: Duration = Duration::from_secs(3);

async fn connect(options: &CallOptions) -> Result<Socket, CallError> {
    let separator = if options.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}model=voluble&voluble=1", options.url);
    let failed = |reason: String| CallError::Connect { url: options.url.clone(), reason };
    let mut request = url.into_client_request().map_err(|error| failed(error.to_string()))?;
    if let Some(key) = &options.key {
        let value = format!("Bearer {key}")
            .parse()
            .map_err(|_| failed("the key cannot be sent in a header".into()))?;
        request.headers_mut().insert("authorization", value);
    }
    let (socket, _) = connect_async(request).await.map_err(|error| failed(error.to_string()))?;
    Ok(socket)
}

/// Opens and closes one call, so that an absent server is one clear line.
pub async fn probe(options: &CallOptions) -> Result<(), CallError> {
    let mut socket = connect(options).await?;
    // The far end may already be gone; the probe has its answer all the same.
    drop(socket.close(None).await);
    Ok(())
}

impl Call {
    /// Calls once with this recording.
    ///
    /// # Errors
    /// When the server cannot be reached or hangs up.
    pub async fn run(options: &CallOptions, recording: &Recording) -> Result<Self, CallError> {
        let socket = connect(options).await?;
        let (mut sink, mut stream) = socket.split();
        let cut = |error: tokio_tungstenite::tungstenite::Error| CallError::Cut(error.to_string());
        let configure = json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {
            "format": {"type": "audio/pcm", "rate": SPEAKING_RATE},
            "transcription": {"model": "whisper-1"},
            "turn_detection": {"type": options.turn_detection},
        }}}});
        sink.send(Message::text(configure.to_string())).await.map_err(cut)?;
        // Streaming starts when the session stands, as a client's does.
        loop {
            let message = stream
                .next()
                .await
                .ok_or_else(|| CallError::Cut("closed before the session stood".into()))?;
            let event = parse(&message.map_err(cut)?);
            match event["type"].as_str() {
                Some("session.updated") => break,
                Some("error") => return Err(CallError::Cut(event["error"]["message"].to_string())),
                _ => {}
            }
        }

        let mut call = Self::default();
        let mut hiss = Hiss::new(recording.floor);
        let started = Instant::now();
        let length = recording.samples.len() as f64 / f64::from(SPEAKING_RATE);
        let mut ticker = tokio::time::interval_at((started + FRAME).into(), FRAME);
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        let mut position = 0;
        // When the newest sample received so far will have been played.
        let mut playing_until = 0.0f64;
        let mut answering = false;
        let mut last_activity = 0.0f64;
        loop {
            tokio::select! {
                _ = ticker.tick() => {
                    let mut frame = vec![0.0; FRAME_SAMPLES];
                    for (offset, sample) in frame.iter_mut().enumerate() {
                        *sample = recording.samples.get(position + offset).copied().unwrap_or_else(|| hiss.next());
                    }
                    position += FRAME_SAMPLES;
                    let event = json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(pcm::encode(&frame))});
                    sink.send(Message::text(event.to_string())).await.map_err(cut)?;
                    let now = started.elapsed().as_secs_f64();
                    let quiet = now - last_activity.max(playing_until).max(length);
                    let answered = !call.created.is_empty() && !answering;
                    let patience = match recording.kind {
                        Kind::Noise => AFTER_NOISE,
                        Kind::Speech if answered => AFTERWARDS,
                        Kind::Speech => PATIENCE,
                    };
                    if quiet > patience.as_secs_f64() {
                        break;
                    }
                }
                message = stream.next() => {
                    let message = message.ok_or_else(|| CallError::Cut("the server closed the call".into()))?.map_err(cut)?;
                    let now = started.elapsed().as_secs_f64();
                    let event = parse(&message);
                    match event["type"].as_str().unwrap_or_default() {
                        "response.created" => {
                            call.created.push(now);
                            answering = true;
                            call.audible.push(f64::NAN);
                            last_activity = now;
                        }
                        "response.output_audio.delta" => {
                            let bytes = STANDARD.decode(event["delta"].as_str().unwrap_or_default()).unwrap_or_default();
                            let samples = pcm::decode(&bytes);
                            let starts = playing_until.max(now);
                            if let Some(audible) = call.audible.last_mut().filter(|at| at.is_nan())
                                && let Some(offset) = samples.iter().position(|sample| sample.abs() > AUDIBLE)
                            {
                                *audible = starts + offset as f64 / f64::from(SPEAKING_RATE);
                            }
                            playing_until = starts + samples.len() as f64 / f64::from(SPEAKING_RATE);
                        }
                        "response.output_audio_transcript.delta" => {
                            call.said.push_str(event["delta"].as_str().unwrap_or_default());
                        }
                        "response.done" => {
                            answering = false;
                            last_activity = now;
                            match event["response"]["status"].as_str() {
                                Some("completed") => call.completed += 1,
                                Some("cancelled") => playing_until = now,
                                _ => call.errors.push(event["response"]["status_details"].to_string()),
                            }
                        }
                        "input_audio_buffer.speech_started" => last_activity = now,
                        "input_audio_buffer.speech_stopped" => {
                            let at = event["audio_end_ms"].as_f64().unwrap_or_default() / 1000.0;
                            call.ends.push(End { at });
                            last_activity = now;
                        }
                        "conversation.item.input_audio_transcription.completed" => {
                            let text = event["transcript"].as_str().unwrap_or_default().trim().to_owned();
                            if !text.is_empty() {
                                call.transcripts.push(text);
                            }
                            last_activity = now;
                        }
                        "voluble.turn.measured" => call.timelines.push(event["timeline"].clone()),
                        "error" => call.errors.push(event["error"]["message"].to_string()),
                        _ => {}
                    }
                }
            }
        }
        // The call is over: what the far end says to the good-bye does not matter.
        drop(sink.close().await);
        Ok(call)
    }
}

fn parse(message: &Message) -> Value {
    message.to_text().ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
}

/// Noise at the recording's own floor, so that its end is no step to digital silence.
struct Hiss {
    rng: rand::rngs::StdRng,
    amplitude: f32,
}

impl Hiss {
    fn new(floor: f32) -> Self {
        // A uniform variable of amplitude a has the root mean square a / sqrt(3).
        Self {
            rng: rand::rngs::StdRng::seed_from_u64(7),
            amplitude: (floor * 3.0f32.sqrt()).clamp(1e-5, 0.02),
        }
    }

    fn next(&mut self) -> f32 {
        self.rng.random_range(-self.amplitude..=self.amplitude)
    }
}
