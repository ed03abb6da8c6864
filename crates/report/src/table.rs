//! Rows in aligned columns.

use crate::Style;
use belljar_contract::visible;

/// Rows under their headings. Every column except the last is as wide as its widest cell.
#[must_use]
pub fn render_table(headings: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| visible(cell).into_owned()).collect()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(headings.get(column).map(|heading| heading.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let mut text = style.bold(&line(&headings));
    text.push('\n');
    for row in &rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    text
}

/// A number of bytes with one decimal, in powers of 1024.
#[must_use]
pub fn human_size(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < units.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_rows_cannot_be_forged() {
        let rows = vec![
            vec!["a".to_owned(), "1".to_owned(), "x".to_owned()],
            vec!["a\nb é".to_owned(), "22".to_owned(), String::new()],
        ];
        let table = render_table(&["name", "n", "note"], &rows, Style::Plain);
        assert_eq!(table, "name    n   note\na       1   x\na\\nb é  22\n");
    }

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 K"),
            (1536, "1.5 K"),
            (1 << 20, "1.0 M"),
            ((1 << 20) - 1, "1023.9 K"),
            (u64::MAX, "15.9 E"),
        ] {
            assert_eq!(human_size(bytes), text);
        }
    }
}
