//! Matches a written answer to the labels of a question.

use crate::question::Chosen;
use belljar_contract::{AskedOption, AskedQuestion, nearest};

/// Suffix that some tools append to the option that they recommend.
const RECOMMENDED: &str = "(recommended)";

/// Punctuation that may follow the first words of a label.
const BOUNDARIES: [char; 5] = [':', '(', ',', '—', '–'];

/// How strictly labels are matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelReading {
    /// The answer was written before the question was known: `first` and the first words of a label match too.
    Scripted,
    /// The answer was given with the question at hand.
    External,
}

/// Why an answer matches no label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    #[error("{question:?} has no option {wanted:?}; it has {}{}", list(.labels), .nearest.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default())]
    NoSuch { question: String, wanted: String, labels: Vec<String>, nearest: Option<String> },
    #[error("{wanted:?} matches several options of {question:?}: {}", list(.labels))]
    Ambiguous { question: String, wanted: String, labels: Vec<String> },
    #[error("{question:?} takes one option, {given} were chosen")]
    OneOnly { question: String, given: usize },
    #[error("no option was chosen for {question:?}")]
    Nothing { question: String },
}

fn list(labels: &[String]) -> String {
    labels.iter().map(|label| format!("{label:?}")).collect::<Vec<_>>().join(", ")
}

/// The labels that an answer matches. For a question without options it is the text itself.
///
/// # Errors
/// If an answer matches no label or several.
pub fn choose(asked: &AskedQuestion, wanted: &[String], reading: LabelReading) -> Result<Chosen, LabelError> {
    let question = || asked.question.clone();
    if wanted.is_empty() {
        return Err(LabelError::Nothing { question: question() });
    }
    if wanted.len() > 1 && !asked.multi_select {
        return Err(LabelError::OneOnly { question: question(), given: wanted.len() });
    }
    if asked.options.is_empty() {
        return Ok(Chosen::Text(wanted.join(", ")));
    }
    let mut labels: Vec<String> = Vec::new();
    for one in wanted {
        let label = label(asked, one, reading)?;
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    Ok(Chosen::Labels(labels))
}

fn label(asked: &AskedQuestion, wanted: &str, reading: LabelReading) -> Result<String, LabelError> {
    let wanted = wanted.trim();
    let low = wanted.to_lowercase();
    let exact = |option: &AskedOption| option.label.trim() == wanted;
    let any_case = |option: &AskedOption| option.label.trim().to_lowercase() == low;
    let bare = |option: &AskedOption| without_recommended(&option.label) == without_recommended(wanted);
    let recommended = |option: &AskedOption| option.label.trim_end().to_lowercase().ends_with(RECOMMENDED);
    let begins = |option: &AskedOption| begins_with(&option.label.to_lowercase(), &low);

    let steps: [&dyn Fn(&AskedOption) -> bool; 2] = [&exact, &any_case];
    for step in steps {
        if let Some(found) = unique(asked, wanted, step)? {
            return Ok(found);
        }
    }
    if !low.is_empty() && low.chars().all(|char| char.is_ascii_digit()) {
        let at = low.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let option = at.and_then(|at| asked.options.get(at));
        return option.map(|option| option.label.clone()).ok_or_else(|| none(asked, wanted));
    }
    if let Some(found) = unique(asked, wanted, &bare)? {
        return Ok(found);
    }
    if low == "recommended"
        && let Some(found) = unique(asked, wanted, &recommended)?
    {
        return Ok(found);
    }
    match reading {
        LabelReading::External => Err(none(asked, wanted)),
        LabelReading::Scripted if low == "first" => {
            asked.options.first().map(|option| option.label.clone()).ok_or_else(|| none(asked, wanted))
        }
        LabelReading::Scripted => unique(asked, wanted, &begins)?.ok_or_else(|| none(asked, wanted)),
    }
}

/// The only option that matches; options with the same label count as one.
fn unique(
    asked: &AskedQuestion,
    wanted: &str,
    fits: &dyn Fn(&AskedOption) -> bool,
) -> Result<Option<String>, LabelError> {
    let mut labels: Vec<String> = Vec::new();
    for option in asked.options.iter().filter(|option| fits(option)) {
        if !labels.contains(&option.label) {
            labels.push(option.label.clone());
        }
    }
    if labels.len() > 1 {
        let question = asked.question.clone();
        return Err(LabelError::Ambiguous { question, wanted: wanted.to_owned(), labels });
    }
    Ok(labels.pop())
}

fn without_recommended(label: &str) -> String {
    let low = label.trim().to_lowercase();
    low.strip_suffix(RECOMMENDED).unwrap_or(&low).trim_end().to_owned()
}

fn begins_with(label: &str, wanted: &str) -> bool {
    let rest = label.strip_prefix(wanted).filter(|_| !wanted.is_empty());
    rest.is_some_and(|rest| {
        let next = rest.trim_start();
        // A hyphen between blanks is a dash; one without them joins words.
        (next.starts_with("- ") && next != rest)
            || next.chars().next().is_none_or(|next| BOUNDARIES.contains(&next))
    })
}

fn none(asked: &AskedQuestion, wanted: &str) -> LabelError {
    let labels: Vec<String> = asked.options.iter().map(|option| option.label.clone()).collect();
    let nearest = nearest(wanted, labels.iter().map(String::as_str)).map(str::to_owned);
    LabelError::NoSuch { question: asked.question.clone(), wanted: wanted.to_owned(), labels, nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(multi_select: bool, labels: &[&str]) -> AskedQuestion {
        let option = |label: &&str| AskedOption { label: (*label).to_owned(), description: String::new() };
        let options = labels.iter().map(option).collect();
        AskedQuestion { question: "Which?".to_owned(), header: String::new(), options, multi_select }
    }

    #[test]
    fn the_order_of_readings() {
        let one = |labels: &[&str], wanted: &str, reading| label(&asked(false, labels), wanted, reading);
        let scripted = LabelReading::Scripted;
        for (labels, wanted, expected) in [
            (["Red", "red"], "red", "red"),
            (["Red", "Blue"], "BLUE", "Blue"),
            (["2", "1"], "1", "1"),
            (["Red", "Blue"], "2", "Blue"),
            (["Markdown (Recommended)", "HTML"], "markdown", "Markdown (Recommended)"),
            (["Markdown", "HTML"], "html (recommended)", "HTML"),
            (["A", "B (Recommended)"], "recommended", "B (Recommended)"),
            (["A", "first"], "first", "first"),
            (["A", "B"], "first", "A"),
            (["Fast: no checks", "Slow"], "fast", "Fast: no checks"),
            (["Fast — no checks", "Faster"], "fast", "Fast — no checks"),
            (["Fast - no checks", "Faster"], "fast", "Fast - no checks"),
        ] {
            assert_eq!(one(&labels, wanted, scripted).as_deref(), Ok(expected), "{labels:?} {wanted}");
        }
        assert!(one(&["Markdown", "HTML"], "Mark", scripted).is_err(), "not at a boundary");
        for joined in ["Fast-track", "Fast- x", "Fast -x"] {
            assert!(one(&[joined, "Slow"], "fast", scripted).is_err(), "{joined}");
        }
        assert!(matches!(one(&["x: a", "x: b"], "x", scripted), Err(LabelError::Ambiguous { .. })));
        assert!(matches!(one(&["RED", "red"], "Red", scripted), Err(LabelError::Ambiguous { .. })));
        for wanted in ["0", "3", "99999999999999999999", ""] {
            assert!(one(&["A", "B"], wanted, scripted).is_err(), "{wanted:?}");
        }
        for wanted in ["first", "fast"] {
            assert!(one(&["Fast: no checks", "Slow"], wanted, LabelReading::External).is_err(), "{wanted}");
        }
    }

    #[test]
    fn several_of_several_and_a_word_about_what_is_near() {
        let wanted = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let several =
            choose(&asked(true, &["S", "M", "L"]), &wanted(&["l", "1", "S"]), LabelReading::Scripted);
        assert_eq!(several, Ok(Chosen::Labels(wanted(&["L", "S"]))));
        let one_only = choose(&asked(false, &["S", "L"]), &wanted(&["S", "L"]), LabelReading::Scripted);
        assert!(matches!(one_only, Err(LabelError::OneOnly { given: 2, .. })));
        let free = choose(&asked(false, &[]), &wanted(&["as you like"]), LabelReading::Scripted);
        assert_eq!(free, Ok(Chosen::Text("as you like".to_owned())));
        let error =
            label(&asked(false, &["Markdown", "HTML"]), "Markdwn", LabelReading::Scripted).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""Which?" has no option "Markdwn"; it has "Markdown", "HTML"; did you mean "Markdown"?"#
        );
    }
}
