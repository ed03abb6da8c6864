//! Rate limits.

use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);

/// At most `most` events in any minute.
#[derive(Debug)]
pub(super) struct PerMinute {
    most: usize,
    times: VecDeque<Instant>,
}

impl PerMinute {
    pub fn new(most: usize) -> Self {
        Self { most, times: VecDeque::new() }
    }

    /// Counts one event, unless the limit is reached.
    pub fn take(&mut self, now: Instant) -> bool {
        while self.times.front().is_some_and(|first| now.saturating_duration_since(*first) >= WINDOW) {
            self.times.pop_front();
        }
        let room = self.times.len() < self.most;
        if room {
            self.times.push_back(now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_applies_to_any_minute() {
        let start = Instant::now();
        let mut rate = PerMinute::new(2);
        let at = |seconds| start + Duration::from_secs(seconds);
        let taken = [0, 30, 30, 59, 60, 61, 89, 90].map(|seconds| rate.take(at(seconds)));
        assert_eq!(taken, [true, true, false, false, true, false, false, true]);
        assert!(!PerMinute::new(0).take(start));
    }
}
