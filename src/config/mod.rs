//! What the operator may set: a tree of sections, each with its defaults.
//!
//! A section lives in the file of its own name and owns its defaults and the
//! meaning, unit and range of each value. Precedence: flag, environment
//! (`VOLUBLE_<SECTION>_<KEY>`), file, default.
