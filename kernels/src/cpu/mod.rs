//! Kernels for the CPU.

mod acts;
pub mod attention;
pub mod blocks;
mod dot;
pub mod matmul;
mod matrix;
mod pool;
mod share;
pub mod vector;

pub use acts::Acts;
pub use blocks::Quant;
pub use matrix::{Format, Matrix};
pub use pool::Pool;

use std::sync::LazyLock;

/// Columns that share one scale, in weights and activations alike.
pub const BLOCK: usize = 32;
/// Output rows interleaved in one tile of weights.
pub const TILE: usize = 8;

/// An instruction set that the kernels know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust.
    Portable,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// The same and the 8-bit dot products of AVX-512 VNNI on 256-bit registers.
    Vnni,
}

impl Isa {
    /// The best that this machine has.
    pub fn best() -> Self {
        static BEST: LazyLock<Isa> = LazyLock::new(Isa::detect);
        *BEST
    }

    /// All that this machine has, plainest first.
    pub fn available() -> Vec<Self> {
        [Self::Portable, Self::Avx2, Self::Vnni].into_iter().filter(|isa| *isa <= Self::best()).collect()
    }

    #[cfg(target_arch = "x86_64")]
    fn detect() -> Self {
        if !(is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        {
            Self::Portable
        } else if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl") {
            Self::Vnni
        } else {
            Self::Avx2
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detect() -> Self {
        Self::Portable
    }
}
