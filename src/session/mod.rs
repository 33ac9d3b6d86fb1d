//! One conversation.
//!
//! `machine` decides (pure: no clock, no locks, no tokio), `driver` carries
//! out (the task, the one `select!`), `manager` admits and drains. The words a
//! dialect speaks to it are [`command`], what it answers is [`event`].

pub mod command;
pub mod driver;
pub mod event;
pub mod history;
pub mod ids;
pub mod item;
pub mod machine;
pub mod manager;
pub mod playback;
pub mod settings;
