//! The options of a worker, which replays one tape of several.

use super::ReplayArgs;
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
        out.extend(["--on-drift".into(), on_drift.name().into()]);
        let mut flag = |name: &str, value: OsString| out.extend([name.into(), value]);
        answers.iter().for_each(|answer| flag("--answer", answer.into()));
        timeout.iter().for_each(|time| flag("--timeout", time.to_string().into()));
        agreed.iter().for_each(|digest| flag("--agree-to", digest.to_string().into()));
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
