//! What the backend `host` does not isolate, in one compact block.

use crate::Style;
use belljar_contract::{OpenNeed, visible};

/// The block; empty if everything is isolated.
#[must_use]
pub fn render_open(open: &[OpenNeed], style: Style) -> String {
    if open.is_empty() {
        return String::new();
    }
    let mut out = format!("{}\n", style.warn("belljar: no sandbox (backend host). NOT isolated:"));
    let width = open.iter().map(|unmet| word(unmet).len()).max().unwrap_or(0);
    for unmet in open {
        out.push_str(&format!("  {:<width$}  {}\n", word(unmet), visible(&unmet.why)));
    }
    out
}

fn word(unmet: &OpenNeed) -> String {
    serde_json::json!(unmet.need).as_str().unwrap_or_default().replace('-', " ")
}
