//! Which `.env` files a trial may use: none that the agent gets, and none of the suite by itself.

use super::load::{NamedFiles, Trial};
use super::scope::really;
use super::trial::TrialError;
use crate::environment::HostEnvironment;
use crate::plan::planned::PlanningError;
use belljar_contract::AbsPath;

impl Trial {
    /// The environment with the values that the trial may use. The `.env` of the working directory is left out if that
    /// directory is the suite's or lies above it, because the author may be a stranger.
    ///
    /// # Errors
    /// If another file lies in something that is staged.
    pub(super) fn environment(&self, environment: &HostEnvironment) -> Result<HostEnvironment, TrialError> {
        let staged = self.staged_sources();
        let beside = really(&environment.directory);
        // Nothing marks where a downloaded suite ends: a file above it may be its author's as well.
        let around =
            |directory: &AbsPath| self.scope.suite.is_within(directory) || self.scope.holds_real(directory);
        let of_the_suite = |path: &AbsPath| {
            around(&beside)
                || path.parent().is_some_and(|directory| around(&directory))
                || staged.iter().any(|source| path.is_within(source))
        };
        let private = environment.private.without_beside(of_the_suite);
        private.outside(staged.iter()).map_err(|inside| Box::new(PlanningError::from(inside)))?;
        Ok(HostEnvironment { private, ..environment.clone() })
    }

    /// Everything that is copied for the agent, links resolved.
    fn staged_sources(&self) -> Vec<AbsPath> {
        let NamedFiles { directories, projects, uploads, skills, plugins, servers: _ } = &self.found;
        let given = directories.iter().map(|(path, _)| path).chain(projects.iter().map(|(_, path)| path));
        let library = skills.iter().chain(plugins).map(|(_, path)| path);
        given.chain(uploads).chain(library).map(really).collect()
    }
}
