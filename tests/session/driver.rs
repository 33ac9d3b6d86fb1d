//! The driver
