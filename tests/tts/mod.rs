//! The real voice: sound, word times, cancel, many at once. Needs the models
//! `piper-en-us-joe-medium` and `onnxruntime` in the store and the program
//! `espeak-ng`.

mod piper;
