//! The program that the kernel runs at every call, made of the table.
//!
//! It is short, because the kernel translates it whole at every start of a sandbox, and an answer costs more than anything
//! else: all calls share them. It finds a call by halving what is left, because the kernel runs it once for every number
//! that there is to learn which calls it always lets through.

use super::{Answer, Check, Entry, Is, SeccompError, When};
use libc::sock_filter;
use std::collections::BTreeMap;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Where the kernel puts what is known of a call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

/// How many calls are compared one after the other before what is left is halved.
const CALLS_IN_PART: usize = 3;

/// An answer further away than this is given anew.
const NEAR: usize = 200;

/// The entries about one call; at least one.
type Call<'a, 'table> = &'a [&'table Entry];

pub(super) fn program<'table>(
    table: impl Iterator<Item = &'table Entry>,
) -> Result<Vec<sock_filter>, SeccompError> {
    let mut entries: Vec<&Entry> = table.collect();
    entries.sort_by_key(|entry| number(entry));
    if let Some([entry, _]) =
        entries.array_windows().find(|[one, next]| number(one) == number(next) && one.answer != next.answer)
    {
        return Err(SeccompError::Ambiguous { call: entry.call });
    }
    let calls: Vec<Call<'_, '_>> = entries.chunk_by(|one, next| number(one) == number(next)).collect();
    let mut program = Backwards::default();
    let found = program.search(&calls);
    program.foreign_guard(found);
    let native = program.load(NUMBER);
    let foreign = program.answer(libc::SECCOMP_RET_KILL_PROCESS);
    program.branch(IF_EQUAL, NATIVE, native, foreign);
    program.load(ARCHITECTURE);
    Ok(program.forwards())
}

/// A program in the making, from its end to its beginning: it leads only forward, to what is there already.
#[derive(Default)]
struct Backwards {
    reversed: Vec<sock_filter>,
    /// Where each answer was given last.
    answers: BTreeMap<u32, Place>,
}

/// An instruction of the program.
#[derive(Clone, Copy)]
struct Place(usize);

impl Backwards {
    fn forwards(mut self) -> Vec<sock_filter> {
        self.reversed.reverse();
        self.reversed
    }

    fn push(&mut self, code: u16, k: u32, jt: u8, jf: u8) -> Place {
        self.reversed.push(sock_filter { code, jt, jf, k });
        Place(self.reversed.len() - 1)
    }

    /// How many instructions are between the next one that is made and this one.
    fn distance(&self, to: Place) -> usize {
        self.reversed.len() - 1 - to.0
    }

    fn answer(&mut self, value: u32) -> Place {
        if let Some(place) = self.answers.get(&value).copied().filter(|place| self.distance(*place) < NEAR) {
            return place;
        }
        let place = self.push(RETURN, value, 0, 0);
        self.answers.insert(value, place);
        place
    }

    fn refusal(&mut self, answer: Answer) -> Place {
        self.answer(match answer.errno() {
            Some(errno) => libc::SECCOMP_RET_ERRNO | errno.raw_os_error() as u32,
            None => libc::SECCOMP_RET_USER_NOTIF,
        })
    }

    fn leave(&mut self) -> Place {
        self.answer(libc::SECCOMP_RET_ALLOW)
    }

    fn branch(&mut self, code: u16, k: u32, yes: Place, no: Place) -> Place {
        let (yes, no) = (self.near(yes), self.near(no));
        let offset = |to| u8::try_from(self.distance(to)).expect("what is far is reached by a jump");
        let (jt, jf) = (offset(yes), offset(no));
        self.push(code, k, jt, jf)
    }

    /// A branch reaches no further than 255 instructions, a jump anywhere. There may be a jump for the other way as well.
    fn near(&mut self, to: Place) -> Place {
        let distance = self.distance(to);
        if distance < usize::from(u8::MAX) {
            return to;
        }
        self.push(JUMP, distance as u32, 0, 0)
    }

    /// Loads 32 bits, and goes on with what was made last.
    fn load(&mut self, from: u32) -> Place {
        self.push(LOAD, from, 0, 0)
    }

    /// Calls of x32 share the architecture and differ by their number.
    #[cfg(target_arch = "x86_64")]
    fn foreign_guard(&mut self, native: Place) {
        const X32_BIT: u32 = 0x4000_0000;
        let refused = self.refusal(Answer::NotImplemented);
        // A tracer that skips a call sets its number to -1; the answer it then gives must not be overwritten.
        let foreign = self.branch(IF_EQUAL, u32::MAX, native, refused);
        self.branch(IF_AT_LEAST, X32_BIT, foreign, native);
    }

    /// No other call numbers share the architecture.
    #[cfg(target_arch = "aarch64")]
    fn foreign_guard(&mut self, _native: Place) {}

    /// Begins with the number loaded, and always ends with an answer.
    fn search(&mut self, calls: &[Call<'_, '_>]) -> Place {
        if calls.len() <= CALLS_IN_PART {
            return self.one_of(calls);
        }
        let (low, high) = calls.split_at(calls.len() / 2);
        let above = self.search(high);
        let below = self.search(low);
        let first = number_of(high.first().copied().unwrap_or_default());
        self.branch(IF_AT_LEAST, first, above, below)
    }

    fn one_of(&mut self, calls: &[Call<'_, '_>]) -> Place {
        let mut next = self.leave();
        for call in calls.iter().rev() {
            let body = self.body(call);
            next = self.branch(IF_EQUAL, number_of(call), body, next);
        }
        next
    }

    /// Emits the answer to a call. Each entry is tried in turn.
    fn body(&mut self, call: Call<'_, '_>) -> Place {
        let mut next = self.leave();
        for entry in call.iter().rev() {
            next = match entry.when {
                When::Always => self.refusal(entry.answer),
                When::Arguments(checks) => self.if_all(checks, entry.answer, next),
            };
        }
        next
    }

    /// Answers if all the checks hold, and goes on at `otherwise` if not.
    fn if_all(&mut self, checks: &[Check], answer: Answer, otherwise: Place) -> Place {
        let mut next = self.refusal(answer);
        for (at, check) in checks.iter().enumerate().rev() {
            next = match check.is {
                Is::Masked { mask, value } if mask == value && mask.is_power_of_two() => {
                    self.branch(IF_ANY_BIT, mask, next, otherwise)
                }
                Is::Equal(value) | Is::Masked { mask: _, value } => {
                    self.branch(IF_EQUAL, value, next, otherwise)
                }
                Is::Not(value) | Is::MaskedNot { mask: _, value } => {
                    self.branch(IF_EQUAL, value, otherwise, next)
                }
            };
            if let Some(mask) = mask_of(check) {
                next = self.push(AND, mask, 0, 0);
            }
            let before = at.checked_sub(1).and_then(|before| checks.get(before));
            // An unmasked value stays in the accumulator and can be compared again.
            if !before.is_some_and(|before| before.argument == check.argument && mask_of(before).is_none()) {
                next = self.load(ARGUMENTS + 8 * u32::from(check.argument));
            }
        }
        next
    }
}

fn number(entry: &Entry) -> u32 {
    entry.number as u32
}

fn number_of(call: Call<'_, '_>) -> u32 {
    call.first().map_or(u32::MAX, |entry| number(entry))
}

/// The mask that is applied to the argument before it is compared.
fn mask_of(check: &Check) -> Option<u32> {
    match check.is {
        // A single bit is looked at as it is.
        Is::Masked { mask, value } if mask == value && mask.is_power_of_two() => None,
        Is::Masked { mask, .. } | Is::MaskedNot { mask, .. } => Some(mask),
        Is::Equal(_) | Is::Not(_) => None,
    }
}
