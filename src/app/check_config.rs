//! `voluble check-config`: every setting, its value and where it came from.

use super::failure::Failure;
use super::output::Out;
use crate::config::Resolved;

/// Prints the table. Settings that cannot be used have failed before.
///
/// # Errors
/// When the output cannot be written.
pub fn run(settings: &Resolved, out: &mut Out<'_>) -> Result<(), Failure> {
    let rows: Vec<[String; 3]> =
        settings.rows().into_iter().map(|row| [row.key, row.value, row.origin]).collect();
    out.table(["SETTING", "VALUE", "ORIGIN"], &rows)
}
