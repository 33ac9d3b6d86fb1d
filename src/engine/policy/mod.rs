//! How many tokens to draft and which drafts are settled.

mod verified;

pub use verified::{Costs, Depths, Drafting, settle};
