//! What commands print: text and tables on stdout.

use std::io::{self, BufWriter, Write};

use super::failure::Failure;

/// Where a command's result goes.
pub struct Out<'a> {
    writer: Box<dyn Write + 'a>,
}

impl<'a> Out<'a> {
    /// The process's stdout, buffered: a command flushes where a person waits.
    pub fn stdout() -> Out<'static> {
        Out { writer: Box::new(BufWriter::new(io::stdout())) }
    }

    /// Any writer.
    pub fn to(writer: impl Write + 'a) -> Self {
        Self { writer: Box::new(writer) }
    }

    /// Text as it is.
    ///
    /// # Errors
    /// [`Failure::ReaderGone`] when the reader went away.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// A line.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Bytes as they are.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.writer.write_all(bytes).map_err(|error| Failure::writing("stdout", &error))
    }

    /// Rows in columns as wide as their widest cell, the first row as heading.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub fn table<const N: usize>(&mut self, heading: [&str; N], rows: &[[String; N]]) -> Result<(), Failure> {
        let mut widths = heading.map(str::len);
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.row(heading, &widths)?;
        for row in rows {
            self.row(row.each_ref().map(String::as_str), &widths)?;
        }
        Ok(())
    }

    fn row<const N: usize>(&mut self, cells: [&str; N], widths: &[usize; N]) -> Result<(), Failure> {
        let mut line = String::new();
        for (cell, width) in cells.into_iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width + 2 - cell.chars().count()));
        }
        self.line(line.trim_end())
    }

    /// Hands over what is buffered.
    ///
    /// # Errors
    /// As [`Out::text`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|error| Failure::writing("stdout", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut bytes = Vec::new();
        let mut out = Out::to(&mut bytes);
        out.table(["NAME", "SIZE"], &[["héé".into(), "1".into()], ["longer".into(), "22".into()]])
            .expect("written");
        drop(out);
        assert_eq!(String::from_utf8(bytes).expect("text"), "NAME    SIZE\nhéé     1\nlonger  22\n");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        assert!(matches!(Out::to(Gone).line("x"), Err(Failure::ReaderGone)));
    }
}
