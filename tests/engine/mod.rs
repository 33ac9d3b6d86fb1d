//! The engine: its invariants, its numbers against other implementations.
//!
//! SmolLM2 where the model does not matter (loads in a moment), Qwen with its
//! drafter where it does. Loading either is shared by all tests of the binary.

mod decode;
