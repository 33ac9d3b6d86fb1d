//! Rows of activations as 8-bit integers.

use super::{BLOCK, vector};

/// Rows of activations, each in blocks of 32 columns: `value = scale * code`,
/// codes from -127 to 127.
#[derive(Debug, Default)]
pub struct Acts {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// `[rows][columns]`
    pub(crate) code: Vec<i8>,
    /// `[rows][columns / 32]`
    pub(crate) scale: Vec<f32>,
    /// Sum of each block's codes, `[rows][columns / 32]`.
    pub(crate) sum: Vec<i32>,
}

impl Acts {
    /// Room for `rows` rows; what was there is meaningless afterwards.
    ///
    /// # Panics
    /// When `columns` is not a multiple of 32.
    pub fn resize(&mut self, rows: usize, columns: usize) {
        assert!(columns.is_multiple_of(BLOCK), "{columns} columns");
        (self.rows, self.columns) = (rows, columns);
        self.code.resize(rows * columns, 0);
        self.scale.resize(rows * columns / BLOCK, 0.0);
        self.sum.resize(rows * columns / BLOCK, 0);
    }

    /// Rows held.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of each row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Quantises one row.
    ///
    /// # Panics
    /// When the row does not exist or `values` has another length.
    pub fn set_row(&mut self, row: usize, values: &[f32]) {
        assert_eq!(values.len(), self.columns);
        let blocks = self.columns / BLOCK;
        vector::quantize(
            values,
            &mut self.code[row * self.columns..][..self.columns],
            &mut self.scale[row * blocks..][..blocks],
            &mut self.sum[row * blocks..][..blocks],
        );
    }

    /// Quantises all rows of `values`, `[rows][columns]`.
    ///
    /// # Panics
    /// When `columns` is not a multiple of 32 or does not divide the values.
    pub fn set(&mut self, columns: usize, values: &[f32]) {
        assert!(values.len().is_multiple_of(columns));
        self.resize(values.len() / columns, columns);
        for (row, values) in values.chunks_exact(columns).enumerate() {
            self.set_row(row, values);
        }
    }
}
