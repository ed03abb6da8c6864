//! The files that a host executes later, as data.
//!
//! A file is of this class when the host runs it, or something it names, without being asked to run *it*: on
//! `git status`, on `cd`, when a directory is opened in an editor or an agent is started. Source code is not: building
//! and testing mean running it. Nor is text that an agent only reads, such as `CLAUDE.md`. Nor is `bin/`: projects keep
//! their own scripts there, it is not on the PATH by itself, and a question about every script teaches users to say yes.
//!
//! Patterns match at any depth, by whole names, without regard to case (some file systems have none). `*` stands
//! for a part of a name; a last `**` for a directory and everything in it; a first `<git>` for any git directory,
//! `<bare>` for one that is not called `.git`.

use Grade::{Guarded, Watched};

/// How files of the class are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Grade {
    /// Tools that an ordinary build runs write it: it stays writable in `direct`, is reported at the end, and needs
    /// a yes on `apply`.
    Watched,
    /// No build writes it: read-only in `direct`, and needs a yes on `apply`.
    Guarded,
}

/// One line of the class.
#[derive(Debug)]
pub struct HostExecuted {
    /// The paths it applies to.
    pub pattern: &'static str,
    /// How they are treated.
    pub grade: Grade,
    /// What would run them.
    pub why: &'static str,
    /// Paths that match, checked by a test.
    pub matches: &'static [&'static str],
    /// Paths that look alike and do not.
    pub near_misses: &'static [&'static str],
}

/// Directories that builds fill and empty. What lies in them is at most watched, unless it is git's: a read-only
/// mount in there would stop the tool that owns the directory, and the code in there runs on the next build anyway.
pub const BUILD_OUTPUT: [&str; 5] = ["node_modules", ".venv", "venv", "target", ".tox"];

const fn guarded(
    pattern: &'static str,
    why: &'static str,
    matches: &'static [&'static str],
    near_misses: &'static [&'static str],
) -> HostExecuted {
    HostExecuted { pattern, grade: Guarded, why, matches, near_misses }
}

const fn watched(
    pattern: &'static str,
    why: &'static str,
    matches: &'static [&'static str],
    near_misses: &'static [&'static str],
) -> HostExecuted {
    HostExecuted { pattern, grade: Watched, why, matches, near_misses }
}

/// Why hooks are of the class.
pub const HOOK: &str = "git runs it on commit, checkout, merge or push";
pub(super) const CONFIG: &str =
    "git runs what it names: fsmonitor on status, filters, pagers, hooks elsewhere";
const AGENT: &str = "the agent on the host runs the hooks and commands it names";
const SERVERS: &str = "the agent on the host starts the servers it names";
const EDITOR: &str = "the editor runs the tasks and programs it names when the directory is opened";
const STARTUP: &str = "the tool runs it when it is started in this directory";
const SHELL: &str = "the shell runs it, or what it names, on entering the directory";
const MANAGER: &str = "the package manager runs the programs and scripts it names";
const NIX: &str = "a shell that enters the directory with nix runs it; an ordinary part of a project";
const SHIM: &str = "it stands for a command on the PATH of scripts, editors and activated shells";
const JJ: &str = "Jujutsu runs the programs and aliases it names";
const SAPLING: &str = "Sapling runs the hooks and aliases it names on every command";
const LEGACY_REMOTE: &str = "git takes it for a remote, whose address may name a program";
const LEFTHOOK: &str = "the installed hook runs the programs it names";
const JAVA: &str = "sbt starts Java with its options, which can name an agent to run";
const COMPLETES: &str = "it makes a repository of the directory, whose configuration git then obeys";

/// The class.
pub const HOST_EXECUTED: &[HostExecuted] = &[
    // git, in every git directory: `.git` at any depth, those of submodules and worktrees inside it, bare ones.
    guarded(
        "<git>/hooks/**",
        HOOK,
        &[
            ".git/hooks",
            ".git/hooks/pre-commit",
            "vendor/sub/.git/hooks/post-checkout",
            ".git/modules/libs/a/hooks/pre-push",
            "bare-repo/hooks/update",
            "hooks-of/.GIT/Hooks/pre-commit",
        ],
        &["hooks/pre-commit", ".git/refs/heads/hooks", ".github/hooks.md", "src/.gitx/hooks/pre-commit"],
    ),
    guarded(
        "<git>/config",
        CONFIG,
        &[".git/config", "a/b/.git/config", ".git/modules/x/config", "bare-repo/config"],
        &["config", ".git/refs/heads/config", ".git/logs/refs/heads/config", "src/config"],
    ),
    guarded(
        "<git>/config.worktree",
        CONFIG,
        &[".git/config.worktree", ".git/worktrees/w/config.worktree"],
        &["config.worktree"],
    ),
    guarded(
        "<git>/info/attributes",
        "git runs the filters and drivers it assigns to files",
        &[".git/info/attributes", "bare-repo/info/attributes"],
        &[".git/info/exclude", "info/attributes", ".gitattributes"],
    ),
    guarded(
        "<git>/commondir",
        "git reads configuration and hooks from where it points",
        &[".git/commondir", ".git/worktrees/w/commondir"],
        &["commondir"],
    ),
    guarded(
        "<git>/remotes/*",
        LEGACY_REMOTE,
        &[".git/remotes/origin", ".git/modules/a/remotes/up", "bare-repo/remotes/up"],
        &[".git/remotes", ".git/refs/remotes/origin/main", ".git/logs/refs/remotes/origin", "remotes/origin"],
    ),
    guarded(
        "<git>/branches/*",
        LEGACY_REMOTE,
        &[".git/branches/origin", "bare-repo/branches/up"],
        &[".git/branches", "branches/origin", ".git/refs/heads/branches/a"],
    ),
    watched(
        "<git>/rebase-merge/git-rebase-todo",
        "git runs its `exec` lines when a rebase goes on",
        &[".git/rebase-merge/git-rebase-todo"],
        &[".git/rebase-merge/done", "git-rebase-todo"],
    ),
    watched(
        "<git>/rebase-apply/**",
        "git applies its patches when a rebase or `git am` goes on, and checks out what it names",
        &[".git/rebase-apply/0001", ".git/worktrees/w/rebase-apply/patch"],
        &["rebase-apply/0001", ".git/rebase-merge/patch"],
    ),
    watched(
        "<git>/sequencer/todo",
        "git applies the commits it names when a cherry-pick or a revert goes on",
        &[".git/sequencer/todo"],
        &["sequencer/todo", ".git/sequencer/head"],
    ),
    watched(
        "<git>/BISECT_START",
        "`git bisect reset` checks out what it names",
        &[".git/BISECT_START"],
        &["BISECT_START", ".git/BISECT_LOG"],
    ),
    watched("<bare>/HEAD", COMPLETES, &["bare-repo/HEAD"], &[".git/HEAD", "HEAD", ".git/modules/x/HEAD"]),
    watched(
        "<bare>/objects",
        COMPLETES,
        &["bare-repo/objects"],
        &[".git/objects", "bare-repo/objects/ab/cd"],
    ),
    watched("<bare>/refs", COMPLETES, &["bare-repo/refs"], &[".git/refs", "bare-repo/refs/heads/main"]),
    watched(
        ".gitmodules",
        "git fetches from where it points, and older ones run what it names",
        &[".gitmodules", "sub/.gitmodules"],
        &["gitmodules"],
    ),
    guarded(
        ".husky/**",
        HOOK,
        &[".husky/pre-commit", ".husky/_/husky.sh", "web/.husky/commit-msg"],
        &["docs/husky/pre-commit"],
    ),
    guarded(".githooks/**", HOOK, &[".githooks/pre-push"], &["githooks/pre-push"]),
    watched(
        ".pre-commit-config.yaml",
        "the installed hook runs the programs it names",
        &[".pre-commit-config.yaml"],
        &[".pre-commit-hooks.yaml", "pre-commit-config.yaml"],
    ),
    watched(
        "lefthook*.y*ml",
        LEFTHOOK,
        &["lefthook.yml", "lefthook-local.yaml", ".config/lefthook.yml"],
        &["lefthook.md"],
    ),
    watched(".lefthook*.y*ml", LEFTHOOK, &[".lefthook.yml", ".lefthook-local.yaml"], &[".lefthook.md"]),
    watched("lefthook*.toml", LEFTHOOK, &["lefthook.toml", "lefthook-local.toml"], &["lefthook.md"]),
    watched(".lefthook*.toml", LEFTHOOK, &[".lefthook.toml"], &[".lefthook.md"]),
    watched(
        ".overcommit.yml",
        "the installed hook runs the programs it names, once it is signed",
        &[".overcommit.yml"],
        &["overcommit.yml"],
    ),
    watched(".git-hooks/**", HOOK, &[".git-hooks/pre_commit/a.rb"], &["git-hooks/a.rb"]),
    watched(
        ".trunk/trunk.yaml",
        "the installed hook runs the actions it names",
        &[".trunk/trunk.yaml"],
        &[".trunk/notes.md", "trunk.yaml"],
    ),
    // Other version control.
    guarded(
        ".hg/hgrc*",
        "Mercurial runs the hooks, aliases and extensions it names on every command",
        &[".hg/hgrc", ".hg/hgrc-not-shared"],
        &["hgrc", ".hgignore", ".hg/store/data"],
    ),
    guarded(
        ".hg/sharedpath",
        "Mercurial reads configuration from where it points",
        &[".hg/sharedpath"],
        &["sharedpath"],
    ),
    guarded(".jj/repo/config.toml", JJ, &[".jj/repo/config.toml"], &["config.toml", ".jj/repo/store/type"]),
    guarded(".jj/workspace-config.toml", JJ, &[".jj/workspace-config.toml"], &["workspace-config.toml"]),
    guarded(
        ".jj/repo",
        "Jujutsu reads configuration from where it points, when it is a file",
        &[".jj/repo"],
        &[".jj/working_copy", "jj/repo"],
    ),
    guarded(".sl/config", SAPLING, &[".sl/config"], &["sl/config", ".sl/store/x"]),
    guarded("<git>/sl/config", SAPLING, &[".git/sl/config"], &["sl/config", ".git/sl/store/x"]),
    guarded(
        ".pijul/config",
        "Pijul runs the hooks it names when a change is recorded",
        &[".pijul/config"],
        &["pijul/config", ".pijul/pristine/db"],
    ),
    watched(".lefthook/**", HOOK, &[".lefthook/pre-commit/check.sh"], &["lefthook/check.sh"]),
    // Agents.
    guarded(
        ".claude/*.json",
        AGENT,
        &[".claude/settings.json", ".claude/settings.local.json", "web/.claude/settings.json"],
        &["CLAUDE.md", ".claude/CLAUDE.md", "claude/settings.json", ".claude/rules/a.md"],
    ),
    guarded(".claude/hooks/**", AGENT, &[".claude/hooks/stop.sh"], &["hooks/stop.sh"]),
    watched(
        ".claude/*.sh",
        "settings name scripts beside them as hooks and status line",
        &[".claude/status.sh"],
        &["status.sh"],
    ),
    watched(
        ".claude/statusline.*",
        "settings name it as status line, which the agent on the host runs all the time",
        &[".claude/statusline.py", ".claude/statusline.js"],
        &["statusline.py", ".claude/statusline"],
    ),
    watched(
        ".claude/agents/**",
        "the agent on the host follows it, with the tools it grants",
        &[".claude/agents/a.md"],
        &["agents/a.md"],
    ),
    watched(
        ".claude/commands/**",
        "the agent on the host runs its `!` lines",
        &[".claude/commands/a.md"],
        &["commands/a.md"],
    ),
    watched(
        ".claude/skills/**",
        "the agent on the host runs its scripts, with the tools it grants",
        &[".claude/skills/a/SKILL.md", ".claude/skills/a/run.py"],
        &["skills/a/SKILL.md"],
    ),
    guarded(".claude/plugins/**", AGENT, &[".claude/plugins/p/hooks/hooks.json"], &["plugins/p/x"]),
    guarded(".mcp.json", SERVERS, &[".mcp.json", "packages/a/.mcp.json"], &["mcp.json", ".mcp.json.md"]),
    guarded(
        "belljar.toml",
        "belljar runs what it names on the host and opens what it asks for",
        &["belljar.toml", "sub/belljar.toml"],
        &["belljar.md", "belljar.toml.example"],
    ),
    guarded(".cursor/*.json", AGENT, &[".cursor/mcp.json", ".cursor/hooks.json"], &[".cursor/rules/a.mdc"]),
    guarded(".cursor/hooks/**", AGENT, &[".cursor/hooks/a.sh"], &["cursor/hooks/a.sh"]),
    watched(".cursor/commands/**", AGENT, &[".cursor/commands/a.md"], &["commands/a.md"]),
    guarded(".gemini/*.json", AGENT, &[".gemini/settings.json"], &["GEMINI.md", ".gemini/GEMINI.md"]),
    guarded(".gemini/.env", AGENT, &[".gemini/.env"], &[".gemini/env"]),
    guarded(".gemini/hooks/**", AGENT, &[".gemini/hooks/a.sh"], &["gemini/hooks/a.sh"]),
    guarded(".gemini/extensions/**", AGENT, &[".gemini/extensions/e/x.json"], &["extensions/e/x.json"]),
    watched(".gemini/commands/**", AGENT, &[".gemini/commands/a.toml"], &["commands/a.toml"]),
    guarded(".codex/*.toml", AGENT, &[".codex/config.toml"], &["AGENTS.md", "codex/config.toml"]),
    guarded(".codex/*.json", AGENT, &[".codex/hooks.json"], &[".codex/notes.md"]),
    guarded(".codex/rules/**", AGENT, &[".codex/rules/default.rules"], &["rules/default.rules"]),
    watched(".codex/skills/**", AGENT, &[".codex/skills/a/run.sh"], &[".codex/prompts.md"]),
    watched(".agents/skills/**", AGENT, &[".agents/skills/a/run.sh"], &["agents/skills/a"]),
    guarded("opencode.json*", SERVERS, &["opencode.json", "opencode.jsonc"], &["opencode.md"]),
    guarded(".opencode/**", AGENT, &[".opencode/plugin/a.ts"], &["opencode/plugin/a.ts"]),
    guarded(".opencode.json*", SERVERS, &[".opencode.json"], &[".opencode.md"]),
    guarded("crush.json", SERVERS, &["crush.json"], &["crush.md"]),
    guarded(".crush.json", SERVERS, &[".crush.json"], &[".crush/session.db"]),
    guarded(".amp/**", AGENT, &[".amp/settings.json", ".amp/plugins/a.ts"], &["amp/settings.json"]),
    guarded(".factory/*.json", AGENT, &[".factory/settings.json", ".factory/mcp.json"], &["factory/a.json"]),
    guarded(".factory/hooks/**", AGENT, &[".factory/hooks/a.sh"], &[".factory/notes.md"]),
    watched(
        ".factory/commands/**",
        "the agent on the host runs those that are programs",
        &[".factory/commands/a.sh"],
        &["commands/a.sh"],
    ),
    guarded(".junie/mcp/**", SERVERS, &[".junie/mcp/mcp.json"], &[".junie/guidelines.md"]),
    guarded(".trae/mcp.json", SERVERS, &[".trae/mcp.json"], &[".trae/rules/a.md"]),
    guarded(".iflow/*.json", AGENT, &[".iflow/settings.json"], &[".iflow/IFLOW.md"]),
    guarded(".kiro/settings/**", SERVERS, &[".kiro/settings/mcp.json"], &[".kiro/steering/a.md"]),
    guarded(".kiro/hooks/**", AGENT, &[".kiro/hooks/a.kiro.hook"], &[".kiro/specs/a.md"]),
    guarded(".windsurf/*.json", AGENT, &[".windsurf/hooks.json"], &[".windsurf/rules/a.md"]),
    guarded(".roo/mcp.json", SERVERS, &[".roo/mcp.json"], &[".roo/rules/a.md"]),
    guarded(
        ".github/hooks/**",
        AGENT,
        &[".github/hooks/a.json"],
        &[".github/workflows/ci.yml", "hooks/a.json"],
    ),
    guarded(".github/extensions/**", AGENT, &[".github/extensions/e/extension.mjs"], &["extensions/e/a.mjs"]),
    guarded(".github/mcp.json", SERVERS, &[".github/mcp.json"], &[".github/mcp.md"]),
    guarded(".github/copilot/*.json", AGENT, &[".github/copilot/settings.json"], &[".github/copilot/a.md"]),
    guarded(".pi/extensions/**", AGENT, &[".pi/extensions/a.ts"], &["pi/extensions/a.ts"]),
    guarded(".vibe/config.toml", SERVERS, &[".vibe/config.toml"], &["vibe/config.toml"]),
    guarded(".codebuddy/*.json", AGENT, &[".codebuddy/settings.json"], &[".codebuddy/rules/a.md"]),
    guarded(".qoder/*.json", AGENT, &[".qoder/settings.json"], &[".qoder/rules/a.md"]),
    guarded(".clinerules/hooks/**", AGENT, &[".clinerules/hooks/PreToolUse"], &[".clinerules/style.md"]),
    guarded(
        ".aider.conf.y*ml",
        "the agent on the host runs the lint, test and notification commands it names",
        &[".aider.conf.yml", ".aider.conf.yaml"],
        &[".aider.chat.history.md", "aider.conf.yml"],
    ),
    guarded(".continue/config.*", SERVERS, &[".continue/config.yaml"], &[".continue/rules/a.md"]),
    guarded(".continue/mcpServers/**", SERVERS, &[".continue/mcpServers/a.yaml"], &["mcpServers/a.yaml"]),
    guarded(".qwen/*.json", AGENT, &[".qwen/settings.json"], &["QWEN.md", ".qwen/QWEN.md"]),
    guarded(".qwen/.env", AGENT, &[".qwen/.env"], &[".qwen/env"]),
    guarded(".qwen/extensions/**", AGENT, &[".qwen/extensions/e/x.json"], &["qwen/extensions/e"]),
    guarded(".amazonq/*.json", SERVERS, &[".amazonq/mcp.json"], &[".amazonq/rules/a.md"]),
    guarded(".amazonq/cli-agents/**", AGENT, &[".amazonq/cli-agents/a.json"], &["cli-agents/a.json"]),
    guarded(".kilocode/mcp.json", SERVERS, &[".kilocode/mcp.json"], &[".kilocode/rules/a.md"]),
    guarded(".augment/*.json", AGENT, &[".augment/settings.json"], &[".augment/rules/a.md"]),
    watched(".augment/commands/**", AGENT, &[".augment/commands/a.md"], &["augment/commands/a.md"]),
    // Editors.
    guarded(
        ".vscode/*.json",
        EDITOR,
        &[".vscode/tasks.json", ".vscode/settings.json", "web/.vscode/launch.json", ".VSCode/tasks.json"],
        &[".vscode/notes.md", "vscode/tasks.json", "tasks.json"],
    ),
    guarded(".vscode/extensions/**", EDITOR, &[".vscode/extensions/e/main.js"], &["extensions/e/main.js"]),
    guarded("*.code-workspace", EDITOR, &["a.code-workspace"], &["code-workspace", "a.code-workspace.md"]),
    guarded(".idea/**", EDITOR, &[".idea/workspace.xml", ".idea/runConfigurations/a.xml"], &["idea/a.xml"]),
    guarded(".zed/*.json", EDITOR, &[".zed/tasks.json"], &["zed/tasks.json"]),
    guarded(".fleet/*.json", EDITOR, &[".fleet/run.json"], &["fleet/run.json"]),
    guarded(".theia/*.json", EDITOR, &[".theia/tasks.json"], &["theia/tasks.json"]),
    guarded(
        "rust-analyzer.toml",
        "rust-analyzer runs the check command it names when a file is opened or saved",
        &["rust-analyzer.toml"],
        &["rust-analyzer.md", "rustfmt.toml"],
    ),
    guarded(
        ".vim/coc-settings.json",
        "the editor starts the language servers it names",
        &[".vim/coc-settings.json"],
        &["coc-settings.json", ".vim/notes.md"],
    ),
    watched(
        ".bsp/*.json",
        "the editor starts the build server it names; build tools write it",
        &[".bsp/sbt.json"],
        &["bsp/sbt.json", ".bsp/out/log"],
    ),
    watched(
        ".run/*.xml",
        "the editor runs what it names on the next Run; an ordinary part of a project",
        &[".run/app.run.xml"],
        &["run/app.run.xml", ".run/notes.md"],
    ),
    guarded(".helix/*.toml", EDITOR, &[".helix/languages.toml"], &["helix/languages.toml"]),
    watched("*.sublime-project", EDITOR, &["a.sublime-project"], &["sublime-project"]),
    guarded(".lazy.lua", EDITOR, &[".lazy.lua"], &["lazy.lua"]),
    guarded(".nvim.lua", EDITOR, &[".nvim.lua", "sub/.nvim.lua"], &["nvim.lua"]),
    guarded(".nvimrc", EDITOR, &[".nvimrc"], &["nvimrc"]),
    guarded(".exrc", EDITOR, &[".exrc"], &["exrc"]),
    guarded(".vimrc", EDITOR, &[".vimrc"], &["vimrc"]),
    guarded(".lvimrc", EDITOR, &[".lvimrc"], &["lvimrc"]),
    guarded(".dir-locals*.el", EDITOR, &[".dir-locals.el", ".dir-locals-2.el"], &["dir-locals.el"]),
    guarded(
        ".ycm_extra_conf.py",
        "the editor runs it when a file beside or below it is opened",
        &[".ycm_extra_conf.py", "src/.ycm_extra_conf.py"],
        &["ycm_extra_conf.py"],
    ),
    watched(
        ".pylintrc",
        "the editor's linter runs its `init-hook`; people and agents edit it as any setting of a project",
        &[".pylintrc"],
        &["pylintrc.md"],
    ),
    watched(
        "pylintrc",
        "the editor's linter runs its `init-hook`; people and agents edit it as any setting of a project",
        &["pylintrc"],
        &["pylintrc.md"],
    ),
    guarded(
        ".devcontainer/**",
        "the editor runs its `initializeCommand` on the host",
        &[".devcontainer/devcontainer.json", ".devcontainer/a/devcontainer.json"],
        &["devcontainer/devcontainer.json"],
    ),
    guarded(".devcontainer.json", EDITOR, &[".devcontainer.json"], &["devcontainer.json"]),
    // Shells and what prepares them.
    guarded(".envrc", SHELL, &[".envrc", "sub/.envrc"], &["envrc", ".envrc.example"]),
    watched(".direnv/**", SHELL, &[".direnv/bin/python"], &["direnv/bin/python"]),
    watched(
        ".env",
        "shells and runners load it: a variable such as NODE_OPTIONS runs code",
        &[".env", "api/.env"],
        &[".env.example", "env"],
    ),
    watched(".env.local", SHELL, &[".env.local"], &[".env.sample"]),
    guarded("mise*.toml", SHELL, &["mise.toml", "mise.local.toml"], &["mise.md"]),
    guarded(".mise*.toml", SHELL, &[".mise.toml"], &[".mise.md"]),
    guarded(".mise/**", SHELL, &[".mise/tasks/build"], &["mise/tasks/build"]),
    guarded(".config/mise/**", SHELL, &[".config/mise/config.toml"], &[".config/other/config.toml"]),
    guarded(".rvmrc", SHELL, &[".rvmrc"], &["rvmrc", ".ruby-version"]),
    guarded(".autoenv.zsh", SHELL, &[".autoenv.zsh"], &["autoenv.zsh"]),
    guarded(".autoenv_leave.zsh", SHELL, &[".autoenv_leave.zsh"], &["autoenv_leave.zsh"]),
    watched("devbox.json", NIX, &["devbox.json"], &["devbox.lock"]),
    watched(".flox/**", NIX, &[".flox/env/manifest.toml"], &["flox/env/manifest.toml"]),
    watched(
        ".tool-versions",
        "it chooses which program a shim starts",
        &[".tool-versions"],
        &["tool-versions", ".python-version"],
    ),
    watched(".bashrc", SHELL, &[".bashrc"], &["bashrc"]),
    watched(".bash_profile", SHELL, &[".bash_profile"], &["bash_profile"]),
    watched(".profile", SHELL, &[".profile"], &["profile"]),
    watched(".zshrc", SHELL, &[".zshrc"], &["zshrc"]),
    watched(".zshenv", SHELL, &[".zshenv"], &["zshenv"]),
    // Tools that run a file of the directory they are started in.
    guarded(".gdbinit", STARTUP, &[".gdbinit"], &["gdbinit"]),
    guarded(".lldbinit", STARTUP, &[".lldbinit"], &["lldbinit"]),
    guarded(".Rprofile", STARTUP, &[".Rprofile"], &["Rprofile"]),
    guarded(".irbrc", STARTUP, &[".irbrc"], &["irbrc"]),
    guarded(".pryrc", STARTUP, &[".pryrc"], &["pryrc"]),
    guarded(".byebugrc", STARTUP, &[".byebugrc"], &["byebugrc"]),
    guarded(".rdbgrc", STARTUP, &[".rdbgrc"], &["rdbgrc"]),
    guarded("jupyter_*_config.py", STARTUP, &["jupyter_notebook_config.py"], &["jupyter_notebook_config.md"]),
    guarded(".ghci", STARTUP, &[".ghci"], &["ghci", "a.ghci"]),
    guarded(".ocamlinit", STARTUP, &[".ocamlinit"], &["ocamlinit"]),
    guarded(".iex.exs", STARTUP, &[".iex.exs"], &["iex.exs", "mix.exs"]),
    guarded(".pdbrc", STARTUP, &[".pdbrc"], &["pdbrc"]),
    guarded(".octaverc", STARTUP, &[".octaverc"], &["octaverc"]),
    guarded(
        ".Renviron",
        "R sets its variables at start, one of which names a profile to run",
        &[".Renviron"],
        &["Renviron"],
    ),
    watched(
        ".RData",
        "R runs the function `.First` in it at start; R itself writes it",
        &[".RData"],
        &["a.RData", ".Rhistory"],
    ),
    // Package managers: what they run before they look at the project.
    guarded(".npmrc", MANAGER, &[".npmrc", "web/.npmrc"], &["npmrc"]),
    guarded(".yarnrc*", MANAGER, &[".yarnrc", ".yarnrc.yml"], &["yarnrc.yml"]),
    guarded(".yarn/releases/**", MANAGER, &[".yarn/releases/yarn-4.cjs"], &[".yarn/cache/a.zip"]),
    guarded(".yarn/plugins/**", MANAGER, &[".yarn/plugins/p.cjs"], &[".yarn/install-state.gz"]),
    watched(".yarn/sdks/**", EDITOR, &[".yarn/sdks/typescript/bin/tsc"], &["sdks/a"]),
    watched(".pnp.*", MANAGER, &[".pnp.cjs", ".pnp.loader.mjs"], &["pnp.cjs"]),
    watched(".pnpmfile.*", MANAGER, &[".pnpmfile.cjs"], &["pnpmfile.cjs"]),
    watched(
        "pnpm-workspace.yaml",
        "pnpm runs the `pnpmfile` it names, before it looks at the project; an ordinary part of a project",
        &["pnpm-workspace.yaml"],
        &["pnpm-lock.yaml"],
    ),
    watched("bunfig.toml", MANAGER, &["bunfig.toml"], &["bun.lock"]),
    guarded(
        ".cargo/config*",
        "cargo, and the editor through it, runs the wrappers and runners it names",
        &[".cargo/config", ".cargo/config.toml"],
        &["cargo/config.toml", "Cargo.toml", ".cargo/audit.toml"],
    ),
    watched(
        "rust-toolchain*",
        "it chooses which toolchain rustup starts, for the editor too; an ordinary part of a project",
        &["rust-toolchain", "rust-toolchain.toml"],
        &["toolchain.toml"],
    ),
    watched("flake.nix", NIX, &["flake.nix"], &["flake.lock", "default.nix"]),
    watched("shell.nix", NIX, &["shell.nix", "nix/shell.nix"], &["shell.sh"]),
    guarded(
        "tools/bazel",
        "bazel starts it in its own place, whatever is asked of it",
        &["tools/bazel"],
        &["tools/bazel.md", "bazel", "tools/bazel/BUILD"],
    ),
    watched(".bazelrc", MANAGER, &[".bazelrc"], &["bazelrc"]),
    watched(
        ".bazelversion",
        "it chooses which bazel is fetched and started",
        &[".bazelversion"],
        &["bazelversion"],
    ),
    watched(".bundle/config", MANAGER, &[".bundle/config"], &["bundle/config"]),
    watched(".mvn/**", MANAGER, &[".mvn/wrapper/maven-wrapper.jar"], &["mvn/jvm.config"]),
    watched(".sbtopts", JAVA, &[".sbtopts"], &["sbtopts"]),
    watched(".jvmopts", JAVA, &[".jvmopts"], &["jvmopts"]),
    watched("gradle/wrapper/**", MANAGER, &["gradle/wrapper/gradle-wrapper.jar"], &["gradle/libs.toml"]),
    // Commands that scripts, editors and activated shells find first.
    watched(
        "node_modules/.bin/**",
        SHIM,
        &["node_modules/.bin/tsc", "web/node_modules/.bin/eslint"],
        &["node_modules/bin/tsc", "bin/tsc", "node_modules/typescript/lib/a.js"],
    ),
    watched(".venv/bin/**", SHIM, &[".venv/bin/python"], &["bin/python", ".venv/lib/a.py"]),
    watched("venv/bin/**", SHIM, &["venv/bin/activate"], &["venv/lib/a.py"]),
    watched("pyvenv.cfg", SHIM, &[".venv/pyvenv.cfg"], &["pyvenv.txt"]),
    watched(
        "site-packages/*.pth",
        "python runs its `import` lines at every start",
        &[".venv/lib/python3.12/site-packages/a.pth"],
        &["model.pth", "site-packages/a.pth.md"],
    ),
    watched(
        "sitecustomize.py",
        "python runs it at every start",
        &[".venv/lib/python3.12/site-packages/sitecustomize.py"],
        &["customize.py"],
    ),
];

/// Files that look as if they belonged to the class, and why they do not.
pub const NOT_TAKEN: &[(&str, &str)] = &[
    ("gradlew, mvnw", "a script that runs when somebody runs it, as every script of a project"),
    (".github/workflows", "runs on another machine, after a push that shows the change"),
    (
        "Makefile, package.json, pyproject.toml, build.rs",
        "building and testing runs it: that is what is asked for",
    ),
    ("default.nix", "evaluated when somebody builds it"),
    ("bin/", "projects keep their own scripts there, and it is on no PATH by itself"),
    (".gitattributes", "assigns filters that a configuration has to define, and that one is guarded"),
    ("CLAUDE.md, AGENTS.md, .clinerules/*.md, rules of agents", "text that an agent reads and does not run"),
    (".git/objects/info/alternates", "names objects and runs nothing"),
];

/// No configuration of git is larger; one that is cannot be judged, because not all of it is read.
pub const LARGEST_CONFIG: u64 = 1 << 20;

/// Files with this ending in a directory of hooks are examples; git runs none of them.
pub const NEVER_RUN: &str = ".sample";

/// A `.git` file points to a git directory, and git uses the configuration there.
pub const GIT_POINTER: &str = "git obeys the configuration where it points";

/// A regular file with a set-id bit runs with its owner's rights, whichever user starts it.
pub const SET_ID: &str = "it runs with its owner's rights, whichever user starts it";

/// A file that the user's manifest, or the configuration of a repository elsewhere, names.
pub const USED_OUTSIDE: &str = "a manifest or git's configuration has it run or read outside";
