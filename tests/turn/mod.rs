//! Hearing on the real models: scores against the reference, and the turns of
//! recordings.

mod goldens;
mod recordings;
