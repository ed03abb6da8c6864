//! The normalisers of a session: what may not be declared, each with its place.

use super::session_spec::NormaliserSpec;
use belljar_contract::decode::{At, Fault, Faults, plain, shown};
use belljar_contract::{MOST_NORMALISERS, SuiteNormaliser, SuiteNormaliserError};

pub(super) fn normalisers(specs: Vec<At<NormaliserSpec>>, faults: &mut Faults<'_>) -> Vec<SuiteNormaliser> {
    let mut out: Vec<SuiteNormaliser> = Vec::new();
    for At { value: NormaliserSpec { name, pattern, reason }, place } in specs {
        if out.len() == MOST_NORMALISERS {
            let fault = Fault::new(format!("a session has at most {MOST_NORMALISERS} normalisers"));
            faults.push("invalid-value", &place.span, fault);
            break;
        }
        if out.iter().any(|known| known.kept().name == name.value.0) {
            let fault = Fault::new(format!("the normaliser `{}` is there twice", shown(&name.value.0)));
            faults.push("duplicate-name", &name.place.span, fault.label("the second"));
            continue;
        }
        match SuiteNormaliser::new(&name.value.0, &pattern.value.0, &reason.value.0) {
            Ok(one) => out.push(one),
            Err(error) => {
                let place = if error == SuiteNormaliserError::Name { &name.place } else { &pattern.place };
                let fault = Fault::new(plain(&error.to_string()));
                let fault = error.help().into_iter().fold(fault, Fault::help);
                faults.push("invalid-value", &place.span, fault);
            }
        }
    }
    out
}
