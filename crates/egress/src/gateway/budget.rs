//! The cap on money, and the claims on what is left of it.
//!
//! The rule: before a request goes out it claims the most that it can cost, which is its input, reckoned from its size,
//! at the dearest price of input, and as many tokens of output as it allows. It goes out only if what was spent, what
//! others have claimed and its own claim stay within the cap. If it is the claims of others that stand in the way, it
//! waits until they are settled; if what was spent leaves too little for it alone, it is refused. When its answer has
//! come, the claim is replaced by what it really cost. So no number of requests at once passes the cap, and none is
//! refused for money that is only claimed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::money::Cost;

/// What may be spent, and what was.
#[derive(Debug)]
pub(super) struct Budget {
    cap: Option<Cost>,
    state: Mutex<State>,
    settled: Notify,
}

#[derive(Debug, Default)]
struct State {
    spent: Cost,
    claimed: Cost,
}

/// Money set aside for one request. Dropped unsettled it counts as spent: nobody said that it was not.
#[derive(Debug)]
pub(super) struct Claim {
    budget: Arc<Budget>,
    amount: Cost,
}

/// The cap leaves too little for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CapReached {
    pub cap: Cost,
    pub spent: Cost,
}

impl Budget {
    pub fn new(cap: Option<Cost>) -> Arc<Self> {
        Arc::new(Self { cap, state: Mutex::default(), settled: Notify::new() })
    }

    /// Whether there is a cap.
    pub fn is_capped(&self) -> bool {
        self.cap.is_some()
    }

    pub fn spent(&self) -> Cost {
        self.state().spent
    }

    /// Sets money aside for a request, once others have left enough.
    pub async fn claim(self: &Arc<Self>, amount: Cost) -> Result<Claim, CapReached> {
        loop {
            let settled = self.settled.notified();
            if let Some(decided) = self.try_claim(amount) {
                return decided;
            }
            settled.await;
        }
    }

    /// The claim or its refusal; nothing while it depends on the claims of others.
    fn try_claim(self: &Arc<Self>, amount: Cost) -> Option<Result<Claim, CapReached>> {
        let mut state = self.state();
        if let Some(cap) = self.cap {
            if state.spent.plus(amount) > cap {
                return Some(Err(CapReached { cap, spent: state.spent }));
            }
            if state.spent.plus(state.claimed).plus(amount) > cap {
                return None;
            }
        }
        state.claimed = state.claimed.plus(amount);
        drop(state);
        Some(Ok(Claim { budget: Arc::clone(self), amount }))
    }

    /// A panic elsewhere cannot leave the sums half changed: each change is whole before the lock is left.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// What is set aside.
    pub fn amount(&self) -> Cost {
        self.amount
    }

    /// Sets another amount aside, now that more is known.
    pub fn revise(&mut self, amount: Cost) {
        let mut state = self.budget.state();
        state.claimed = state.claimed.minus(self.amount).plus(amount);
        drop(state);
        self.amount = amount;
        self.budget.settled.notify_waiters();
    }

    /// Replaces the claim by what the request cost.
    pub fn settle(mut self, cost: Cost) {
        self.revise(cost);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.claimed = state.claimed.minus(self.amount);
        state.spent = state.spent.plus(self.amount);
        drop(state);
        self.budget.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dollars(amount: u64) -> Cost {
        Cost::of(amount, 1_000_000_000_000)
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn claims_at_once_do_not_pass_the_cap_together() {
        block_on(async {
            let budget = Budget::new(Some(dollars(10)));
            let mut running = tokio::task::JoinSet::new();
            let most = Arc::new(Mutex::new(0_u64));
            let now = Arc::new(Mutex::new(0_u64));
            for _ in 0..9 {
                let (budget, most, now) = (Arc::clone(&budget), Arc::clone(&most), Arc::clone(&now));
                running.spawn(async move {
                    let claim = budget.claim(dollars(4)).await?;
                    let under_way = {
                        let mut now = now.lock().unwrap();
                        *now += 1;
                        *now
                    };
                    {
                        let mut most = most.lock().unwrap();
                        *most = under_way.max(*most);
                    }
                    for _ in 0..5 {
                        tokio::task::yield_now().await;
                    }
                    *now.lock().unwrap() -= 1;
                    claim.settle(dollars(1));
                    Ok::<_, CapReached>(())
                });
            }
            let mut outcomes = Vec::new();
            while let Some(outcome) = running.join_next().await {
                outcomes.push(outcome.unwrap());
            }
            // Two claims of four fit at a time; after seven answers at one each, three are left.
            assert_eq!(*most.lock().unwrap(), 2);
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 7);
            assert_eq!(budget.spent(), dollars(7));
        });
    }

    #[test]
    fn a_claim_that_waits_goes_on_when_another_settles_and_is_refused_when_too_much_was_spent() {
        block_on(async {
            let budget = Budget::new(Some(dollars(10)));
            for (cost, admitted) in [(dollars(0), true), (dollars(6), false)] {
                let first = budget.claim(dollars(6)).await.unwrap();
                let waiting = tokio::spawn({
                    let budget = Arc::clone(&budget);
                    async move { budget.claim(dollars(6)).await }
                });
                tokio::task::yield_now().await;
                assert!(!waiting.is_finished());
                first.settle(cost);
                let second = waiting.await.unwrap();
                assert_eq!(second.is_ok(), admitted);
                if let Ok(second) = second {
                    second.settle(Cost::ZERO);
                }
            }
        });
    }

    #[test]
    fn a_claim_that_nobody_settled_was_spent_and_without_a_cap_all_is_counted() {
        block_on(async {
            let budget = Budget::new(Some(dollars(10)));
            drop(budget.claim(dollars(7)).await.unwrap());
            assert_eq!(budget.spent(), dollars(7));
            let refused = budget.claim(dollars(4)).await.unwrap_err();
            assert_eq!(refused, CapReached { cap: dollars(10), spent: dollars(7) });
            budget.claim(dollars(3)).await.unwrap().settle(Cost::ZERO);

            let open = Budget::new(None);
            open.claim(dollars(1000)).await.unwrap().settle(dollars(2));
            assert_eq!(open.spent(), dollars(2));
        });
    }
}
