//! The options of a worker, which replays one tape of several.

use super::ReplayArgs;
use crate::cmd::many::option;
use belljar_contract::Digest;
use std::ffi::OsString;

impl ReplayArgs {
    /// The options for the worker of one tape, which agrees to what the user agreed to.
    pub(super) fn for_worker(&self, agreed: Option<Digest>) -> Vec<OsString> {
        let Self {
            paths: _,
            many: _,
            repeat: _,
            on_drift,
            protocol: _,
            explain: _,
            mutate: _,
            strict,
            allow_stale,
            timed,
            answers,
            network,
            sandbox,
            agent,
            agree: _,
            dotenv,
            timeout,
            include_untracked,
            keep,
            quiet: _,
            verbose: _,
            json: _,
        } = self;
        let mut out = sandbox.arguments();
        out.extend(agent.arguments());
        out.extend(dotenv.arguments());
        out.push(option("--on-drift", on_drift.name()));
        out.extend(answers.iter().map(|answer| option("--answer", answer)));
        out.extend(timeout.iter().map(|time| option("--timeout", time.to_string())));
        out.extend(agreed.iter().map(|digest| option("--agree-to", digest.to_string())));
        let flags = [
            (strict, "--strict"),
            (allow_stale, "--allow-stale"),
            (timed, "--timed"),
            (network, "--network"),
            (include_untracked, "--include-untracked"),
            (keep, "--keep"),
        ];
        out.extend(flags.into_iter().filter(|(set, _)| **set).map(|(_, flag)| OsString::from(flag)));
        out
    }
}
