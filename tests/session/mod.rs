//! The conversation: the pure machine under virtual time, random walks over
//! every order of events, and the driver with scripted parts.

mod driver;
mod edges;
mod rig;
mod scenarios;
mod walks;
