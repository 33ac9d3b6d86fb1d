//! Raw compute for the engine: kernels and their preconditions, nothing else.
//!
//! A leaf crate. It knows no model, no sequence and no policy; it multiplies
//! packed weights with rows of activations ([`cpu::matmul`]), attends
//! ([`cpu::attention`]) and does what lies between ([`cpu::vector`]), on a
//! small pool of threads ([`cpu::Pool`]).
//!
//! # What every kernel promises
//!
//! * **A row's result does not depend on the other rows.** Each output number
//!   is summed in one fixed order whatever the number of rows, threads or the
//!   instruction set, so a pass over eight rows gives bit for bit what eight
//!   passes over one row give. The engine's "verified equals plain" rests on it.
//! * The instruction set is chosen at run time ([`cpu::Isa`]); the portable
//!   path of the integer products gives the same bits as the fast ones.
//! * Sizes are checked at the safe entry points, which panic on a mismatch.
//!
//! `unsafe` lives here and nowhere else (but for mapping weight files); each
//! block says why it is sound.

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod cpu;
