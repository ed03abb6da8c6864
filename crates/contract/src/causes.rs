//! An error and what caused it.

use std::error::Error;

/// The error and its causes, the outermost first.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The error and its causes in one line, as in `cannot read x: permission denied`.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x")]
    struct Read(#[source] std::fmt::Error);

    #[test]
    fn every_cause_is_named_once() {
        assert_eq!(with_causes(&Read(std::fmt::Error)), format!("cannot read x: {}", std::fmt::Error));
        assert_eq!(with_causes(&std::fmt::Error), std::fmt::Error.to_string());
        assert_eq!(causes(&Read(std::fmt::Error)).filter(|cause| cause.is::<std::fmt::Error>()).count(), 1);
    }
}
