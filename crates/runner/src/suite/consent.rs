//! Decides whether the user agreed to what suites ask for beyond their own directories.

use super::requests::{Consent, TrialUse};
use crate::plan::agreements::{AgreementError, AgreementStanding, Agreements};
use belljar_contract::{Digest, Wish, Wishes};
use serde_json::Value;

/// What the command line says about the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgreedBy {
    /// Nothing: the stored agreements count.
    Agreements,
    /// `--yes`: all of them, for this call.
    Yes,
    /// `--agree-to`: those with this digest and no others.
    Digest(Digest),
}

/// Whether all that the files ask for is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownPart {
    Whole,
    /// A file beyond the suite, which was not read, may ask for more.
    InPart,
}

/// What follows from the command line and the stored agreements.
#[derive(Debug)]
pub enum ConsentDecision {
    Given(Consent),
    /// `--agree-to` names a digest, and the files ask for nothing.
    NothingAsked {
        pinned: Digest,
    },
    /// `--agree-to` names another digest.
    Differs {
        pinned: Digest,
        found: Digest,
        wishes: Vec<Wishes>,
    },
    /// The user has to be asked.
    Open(OpenConsent),
}

/// Requests that the user has to agree to.
#[derive(Debug)]
pub struct OpenConsent {
    used_for: TrialUse,
    known: KnownPart,
    /// All requests, those that an agreement covers included.
    pub all: Vec<Wishes>,
    pub open: Vec<OpenWishes>,
}

/// The requests of one suite that no agreement covers.
#[derive(Debug, Clone)]
pub struct OpenWishes {
    pub wishes: Wishes,
    /// What was agreed to before for the same suite, as it is stored.
    before: Option<Value>,
}

impl OpenWishes {
    /// Requests that the user never saw.
    #[must_use]
    pub fn of(wishes: Wishes) -> Self {
        Self { wishes, before: None }
    }

    /// The requests that were not agreed to before.
    #[must_use]
    pub fn new_ones(&self) -> Vec<&Wish> {
        let before = self.before_here();
        let known = |wish: &Wish| before.is_some_and(|before| Wishes::stored_has(before, wish));
        self.wishes.list().iter().filter(|wish| !known(wish)).collect()
    }

    /// Whether the user agreed to something before, for the same directory.
    #[must_use]
    pub fn has_earlier_agreement(&self) -> bool {
        self.before_here().is_some()
    }

    /// An agreement for another directory says nothing about this one.
    fn before_here(&self) -> Option<&Value> {
        self.before.as_ref().filter(|before| self.wishes.has_root_of(before))
    }
}

/// Stores the user's yes to requests.
///
/// # Errors
/// If an agreement cannot be written.
pub fn agree(open: &[OpenWishes], known: KnownPart, agreements: &Agreements) -> Result<(), AgreementError> {
    open.iter().try_for_each(|one| match known {
        KnownPart::Whole => agreements.agree(&one.wishes).map(drop),
        KnownPart::InPart => agreements.agree_further(&one.wishes, one.before.as_ref()).map(drop),
    })
}

impl AgreedBy {
    /// Whether a file beyond the suite may be opened. What `--agree-to` names is compared once everything is known;
    /// nothing is staged or printed before.
    #[must_use]
    pub fn permits(self, wishes: &Wishes, agreements: &Agreements) -> bool {
        match self {
            Self::Yes | Self::Digest(_) => true,
            Self::Agreements => matches!(agreements.standing(wishes), Ok(AgreementStanding::Agreed)),
        }
    }

    /// Decides on what all suites ask for.
    ///
    /// # Errors
    /// If a stored agreement cannot be read.
    pub fn decide(
        self,
        all: Vec<Wishes>,
        used_for: TrialUse,
        known: KnownPart,
        agreements: &Agreements,
    ) -> Result<ConsentDecision, AgreementError> {
        let mut wishes: Vec<Wishes> = Vec::new();
        for one in all.into_iter().filter(|one| !one.is_empty()) {
            if !wishes.contains(&one) {
                wishes.push(one);
            }
        }
        let found = Wishes::digest_of_all(&wishes);
        Ok(match self {
            Self::Digest(pinned) if wishes.is_empty() => ConsentDecision::NothingAsked { pinned },
            Self::Digest(pinned) if pinned != found => ConsentDecision::Differs { pinned, found, wishes },
            Self::Digest(_) | Self::Yes => ConsentDecision::Given(Consent::to(used_for, wishes)),
            Self::Agreements => match not_agreed(&wishes, agreements)? {
                open if open.is_empty() => ConsentDecision::Given(Consent::to(used_for, wishes)),
                open => ConsentDecision::Open(OpenConsent { used_for, known, all: wishes, open }),
            },
        })
    }
}

impl OpenConsent {
    /// Stores the user's yes and returns the consent.
    ///
    /// # Errors
    /// If the agreement cannot be written.
    pub fn agree(self, agreements: &Agreements) -> Result<Consent, AgreementError> {
        agree(&self.open, self.known, agreements)?;
        Ok(Consent::to(self.used_for, self.all))
    }
}

/// The requests that no agreement covers.
///
/// # Errors
/// If a stored agreement cannot be read.
pub fn not_agreed(wishes: &[Wishes], agreements: &Agreements) -> Result<Vec<OpenWishes>, AgreementError> {
    let mut open = Vec::new();
    for one in wishes.iter().filter(|one| !one.is_empty()) {
        match agreements.standing(one)? {
            AgreementStanding::Agreed => {}
            AgreementStanding::Never => open.push(OpenWishes::of(one.clone())),
            AgreementStanding::Changed(before) => {
                open.push(OpenWishes { wishes: one.clone(), before: Some(before.shown) });
            }
        }
    }
    Ok(open)
}
