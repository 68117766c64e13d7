//! The block that every long-running command prints when it starts: aligned `key: value` lines,
//! on standard error.

use std::fmt;

/// What to print, in order.
#[derive(Default)]
pub struct StartBlock {
    rows: Vec<(String, String)>,
}

impl StartBlock {
    /// A block that begins with the command and the version.
    pub fn new(role: &str) -> StartBlock {
        StartBlock::default().row("photon", format!("{role}, version {}", env!("CARGO_PKG_VERSION")))
    }

    /// One more row.
    #[must_use]
    pub fn row(mut self, key: impl Into<String>, value: impl fmt::Display) -> StartBlock {
        self.rows.push((key.into(), value.to_string()));
        self
    }

    /// Prints it.
    pub fn print(&self) {
        eprint!("{self}");
    }
}

impl fmt::Display for StartBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|(key, _)| key.len()).max().unwrap_or_default() + 1;
        self.rows.iter().try_for_each(|(key, value)| writeln!(f, "{:width$} {value}", format!("{key}:")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned() {
        let block = StartBlock::default().row("node", 1).row("data directory", "d");
        assert_eq!(block.to_string(), "node:           1\ndata directory: d\n");
    }
}
