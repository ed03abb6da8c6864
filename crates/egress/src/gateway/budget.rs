//! The cap on the cost of a run, and the reservations against it.
//!
//! Before a request is sent, its maximum cost is reserved: its input, estimated from its size, at the highest price of
//! input, and as many output tokens as it allows. It is sent only if the money spent, all reservations and its own stay
//! within the cap. If other reservations stand in the way, it waits until they are settled; if the money spent leaves too
//! little for this request alone, it is refused. When the response has arrived, the real cost replaces the reservation.
//! So concurrent requests never exceed the cap together, and none is refused for money that is only reserved.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::money::Cost;

#[derive(Debug)]
pub(super) struct Budget {
    cap: Option<Cost>,
    state: Mutex<BudgetState>,
    settled: Notify,
}

#[derive(Debug, Default)]
struct BudgetState {
    spent: Cost,
    reserved: Cost,
}

/// A reservation for one request. If it is dropped without being settled, the full amount counts as spent.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<Budget>,
    amount: Cost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CapReached {
    pub cap: Cost,
    pub spent: Cost,
}

impl Budget {
    pub fn new(cap: Option<Cost>) -> Arc<Self> {
        Arc::new(Self { cap, state: Mutex::default(), settled: Notify::new() })
    }

    pub fn is_capped(&self) -> bool {
        self.cap.is_some()
    }

    pub fn spent(&self) -> Cost {
        self.state().spent
    }

    /// Reserves an amount, waiting for other reservations if necessary.
    pub async fn reserve(self: &Arc<Self>, amount: Cost) -> Result<Reservation, CapReached> {
        loop {
            let settled = self.settled.notified();
            if let Some(decided) = self.try_reserve(amount) {
                return decided;
            }
            settled.await;
        }
    }

    /// The reservation or its refusal; `None` while it depends on other reservations.
    fn try_reserve(self: &Arc<Self>, amount: Cost) -> Option<Result<Reservation, CapReached>> {
        let mut state = self.state();
        if let Some(cap) = self.cap {
            if state.spent.plus(amount) > cap {
                return Some(Err(CapReached { cap, spent: state.spent }));
            }
            if state.spent.plus(state.reserved).plus(amount) > cap {
                return None;
            }
        }
        state.reserved = state.reserved.plus(amount);
        drop(state);
        Some(Ok(Reservation { budget: Arc::clone(self), amount }))
    }

    /// A panic elsewhere cannot leave the sums half changed: each change is complete before the lock is released.
    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    pub fn amount(&self) -> Cost {
        self.amount
    }

    /// Changes the reserved amount, now that more is known.
    pub fn revise(&mut self, amount: Cost) {
        let mut state = self.budget.state();
        state.reserved = state.reserved.minus(self.amount).plus(amount);
        drop(state);
        self.amount = amount;
        self.budget.settled.notify_waiters();
    }

    /// Replaces the reservation by the real cost.
    pub fn settle(mut self, cost: Cost) {
        self.revise(cost);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.budget.state();
        state.reserved = state.reserved.minus(self.amount);
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
    fn concurrent_reservations_stay_within_the_cap() {
        block_on(async {
            let budget = Budget::new(Some(dollars(10)));
            let mut running = tokio::task::JoinSet::new();
            let most = Arc::new(Mutex::new(0_u64));
            let now = Arc::new(Mutex::new(0_u64));
            for _ in 0..9 {
                let (budget, most, now) = (Arc::clone(&budget), Arc::clone(&most), Arc::clone(&now));
                running.spawn(async move {
                    let reservation = budget.reserve(dollars(4)).await?;
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
                    reservation.settle(dollars(1));
                    Ok::<_, CapReached>(())
                });
            }
            let mut outcomes = Vec::new();
            while let Some(outcome) = running.join_next().await {
                outcomes.push(outcome.unwrap());
            }
            // Two reservations of four fit at a time; after seven responses at one each, three are left.
            assert_eq!(*most.lock().unwrap(), 2);
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 7);
            assert_eq!(budget.spent(), dollars(7));
        });
    }

    #[test]
    fn a_waiting_reservation_is_decided_when_another_is_settled() {
        block_on(async {
            let budget = Budget::new(Some(dollars(10)));
            for (cost, admitted) in [(dollars(0), true), (dollars(6), false)] {
                let first = budget.reserve(dollars(6)).await.unwrap();
                let waiting = tokio::spawn({
                    let budget = Arc::clone(&budget);
                    async move { budget.reserve(dollars(6)).await }
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
    fn an_unsettled_reservation_counts_as_spent_and_without_a_cap_everything_is_counted() {
        block_on(async {
            let budget = Budget::new(Some(dollars(10)));
            drop(budget.reserve(dollars(7)).await.unwrap());
            assert_eq!(budget.spent(), dollars(7));
            let refused = budget.reserve(dollars(4)).await.unwrap_err();
            assert_eq!(refused, CapReached { cap: dollars(10), spent: dollars(7) });
            budget.reserve(dollars(3)).await.unwrap().settle(Cost::ZERO);

            let open = Budget::new(None);
            open.reserve(dollars(1000)).await.unwrap().settle(dollars(2));
            assert_eq!(open.spent(), dollars(2));
        });
    }
}
