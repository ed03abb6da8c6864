//! Votes of a judge: what counts, and what is left open.

use super::made::*;
use super::result;
use belljar_contract::{
    Claim, ClaimAnswer, ClaimScope, ClaimStand, ClaimVote, Evidence, Observation, Outcome, Whole,
};
use serde_json::json;

fn vote(stand: ClaimStand, quote: Option<&str>) -> ClaimVote {
    ClaimVote { stand, reason: "because".to_owned(), quote: quote.map(str::to_owned) }
}

fn judged(wanted: u8, votes: Vec<ClaimVote>) -> Evidence {
    let claim = Claim { text: "It greets.".to_owned(), scope: ClaimScope::Agent, model: None, votes: wanted };
    let claims = vec![ClaimAnswer { claim, by: "m-1".to_owned(), votes }];
    Evidence {
        claims,
        ..talk(vec![
            said("Hello to you."),
            Observation::Said { by: under("c1"), text: "Deep inside.".to_owned() },
        ])
    }
}

#[test]
fn a_vote_counts_with_a_quote_that_occurs() {
    use ClaimStand::{DoesNot, Holds, Unclear};
    let item = json!({"semantic_matches": {"rubric": ["It greets."]}});
    for (one, wanted) in [
        (vote(Holds, Some("Hello to")), Outcome::Pass),
        (vote(Holds, Some("Hello  to\nyou")), Outcome::Pass),
        (vote(Holds, Some("Good evening")), Outcome::Unknown),
        // Too short to show anything.
        (vote(Holds, Some(".")), Outcome::Unknown),
        (vote(Holds, Some("e")), Outcome::Unknown),
        (vote(Holds, Some("to y")), Outcome::Unknown),
        (vote(Holds, Some("Deep inside")), Outcome::Unknown),
        (vote(Holds, Some("  ")), Outcome::Unknown),
        (vote(Holds, None), Outcome::Unknown),
        (vote(DoesNot, None), Outcome::Fail),
        (vote(DoesNot, Some("Hello to you.")), Outcome::Fail),
        (vote(DoesNot, Some("Good evening")), Outcome::Unknown),
        (vote(Unclear, Some("Hello to you.")), Outcome::Unknown),
    ] {
        let found = result(&item, &judged(1, vec![one.clone()]));
        assert_eq!(found.outcome, wanted, "{one:?}: {found:?}");
    }
    let whole = judged(1, vec![vote(Holds, Some("Hello"))]);
    let cut = Evidence { conversation: Whole::No { why: "it was cut off".to_owned() }, ..whole };
    assert_eq!(result(&item, &cut).outcome, Outcome::Unknown, "what is not there could say otherwise");
}

/// The part that was left out may contain what a claim says is absent, or what it says is there.
#[test]
fn a_claim_about_evidence_that_was_cut_is_unknown() {
    let item = json!({"semantic_matches": {"rubric": ["It greets."]}});
    let long = "word ".repeat(40_000);
    for one in [vote(ClaimStand::Holds, Some("word word")), vote(ClaimStand::DoesNot, None)] {
        let evidence = Evidence { claims: judged(1, vec![one]).claims, ..talk(vec![said(&long)]) };
        let found = result(&item, &evidence);
        assert_eq!(found.outcome, Outcome::Unknown, "{found:?}");
        let says = |text: &str| found.evidence.iter().any(|note| note.text.contains(text));
        assert!(says("the transcript (200000 bytes) does not fit in the limit of 131072 bytes"), "{found:?}");
    }
}

#[test]
fn the_majority_of_all_votes_decides() {
    use ClaimStand::{DoesNot, Holds};
    let item = json!({"semantic_matches": {"rubric": ["It greets."], "votes": 3}});
    let (yes, no, made_up) =
        (vote(Holds, Some("Hello")), vote(DoesNot, None), vote(Holds, Some("Good evening")));
    for (votes, wanted) in [
        (vec![&yes, &yes, &no], Outcome::Pass),
        (vec![&no, &yes, &no], Outcome::Fail),
        (vec![&yes, &made_up, &made_up], Outcome::Unknown),
        (vec![&yes, &no, &made_up], Outcome::Unknown),
        // A vote that is missing may have been the other one.
        (vec![&yes, &yes], Outcome::Unknown),
        (vec![&yes, &yes, &yes, &yes], Outcome::Unknown),
        (vec![], Outcome::Unknown),
    ] {
        let votes: Vec<ClaimVote> = votes.into_iter().cloned().collect();
        let found = result(&item, &judged(3, votes));
        assert_eq!(found.outcome, wanted, "{found:?}");
    }
    let never = result(&item, &talk(vec![said("Hello to you.")]));
    assert_eq!(never.outcome, Outcome::Unknown);
    assert!(never.evidence.iter().any(|note| note.text.contains("with a credential")), "{never:?}");
}
