//! The one integration binary: one link step for all.
