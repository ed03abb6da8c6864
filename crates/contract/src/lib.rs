//! Data types that are stored or exchanged between processes, and pure functions on them.
//!
//! Everything here is pure: no clock, no disk, no environment, no network. Text is validated once, when it is parsed
//! into one of these types, and not again afterwards.

mod agent_release;
mod agent_version;
mod attempt;
mod backend;
mod causes;
mod container;
mod date;
pub mod decode;
mod destination;
mod diagnostic;
mod digest;
mod egress;
mod egress_log;
mod ending;
mod entering;
mod envelope;
mod event;
mod evidence;
mod exit;
mod finding;
mod frame;
mod frame_log;
mod glob;
mod guest;
mod harness;
mod host;
mod image;
mod judgement;
mod launch;
mod limits;
mod model_access;
mod model_forms;
mod model_log;
mod name;
mod nearest;
mod observation;
mod outside;
mod path;
mod pattern;
mod plan;
mod proof;
mod quantity;
mod request_rule;
mod result;
mod run;
mod scrub;
mod secret;
mod ssh;
mod suite_normaliser;
mod summary;
mod synthetic_addresses;
mod tape;
mod trust;
mod upgrade;
mod used_outside;
mod visible;
mod wish;

pub use agent_release::{
    AgentChoice, AgentRelease, AgentReleaseError, AgentSource, AgentUsed, NamedBy, PublishedVersion,
    is_agent_name,
};
pub use agent_version::{Ability, AgentVersion, AgentVersions, VersionStanding};
pub use attempt::{Attempt, AttemptRequest, ProbeFinding, ProbeOutcome, ProcessFile};
pub use backend::BackendKind;
pub use causes::{causes, with_causes};
pub use container::{Container, ContainerImage, ContainerMount, ImageWant, SandboxChoice, WantWeight};
pub use date::UtcTime;
pub use destination::{Destination, DestinationError, Host};
pub use diagnostic::{Diagnostic, Label, Severity, SourceFile, Sources, position};
pub use digest::{Digest, DigestSoFar};
pub use egress::{AddressClass, Admission, Denial, DenialReason, EgressPolicy};
pub use egress_log::{
    EGRESS_LOG_FORMAT, EGRESS_NOT_DIALLED, EgressChain, EgressDecision, EgressEnd, EgressLogFault,
    EgressLogReading, EgressLogState, EgressRefusal, EgressRow, EgressVerdict, EgressWay, Enforcement,
    read_egress_log,
};
pub use ending::{ConversationEnd, ConversationFailure, Deadline};
pub use entering::{COMMON_BELOW, Entering, SHARED_FILE_MAX, is_plain, not_redacted};
pub use envelope::{ENVELOPE_FORMAT, Envelope};
pub use event::{EVENT_FORMAT, Event, EventRecord, HeldAnswer, LimitKind, Logged};
pub use evidence::{
    Claim, ClaimAnswer, ClaimScope, ClaimStand, ClaimVote, Delivery, Evidence, FileKind, FileSeen, FilesSeen,
    Gate, JudgeUsage, Lane, ModelEvidence, RunIsolation, Seen, Whole,
};
pub use exit::ExitCode;
pub use finding::{Danger, FINDINGS_FORMAT, Finding, Findings, FoundAs, HeldBack};
pub use frame::{
    AfterDeny, AgentRequest, AskedOption, AskedQuestion, AssistantFrame, Block, CallId, DialogReply,
    DialogRequest, ElicitationReply, ElicitationRequest, Frame, FrameError, HookCall, HookPermission,
    HookReply, HookSubscription, HostReply, HostRequest, IdError, Inbound, InitFrame, Initialize, McpMessage,
    MessageId, Outbound, PermissionMode, PermissionReply, PermissionRequest, Reply, RequestId, ResultFrame,
    SessionId, SessionState, TaskFrame, TaskStep, Usage, UserFrame, UserMessage,
};
pub use frame_log::{
    ClaimedBlock, ClaimedResult, FrameClaim, FrameSeen, FrameWay, SYNTHETIC_MODEL, claim_of_agent,
    claim_of_belljar, frames_chain, read_frames, session_of,
};
pub use glob::{glob_matches, text_glob_matches};
pub use guest::{
    GUEST_GUARD_PATHS_MAX, GUEST_LISTENERS_MAX, GUEST_PROGRAM, GUEST_PROTOCOL, GUEST_REPORT_MAX,
    GUEST_SPEC_MAX, GuestAct, GuestAddress, GuestAlias, GuestAnswer, GuestBeginning, GuestBounds,
    GuestCodecError, GuestEnd, GuestFiles, GuestFilter, GuestGround, GuestGuard, GuestGuardRoot,
    GuestLandlock, GuestLayer, GuestLimit, GuestListener, GuestOnHeld, GuestOrder, GuestOverlay, GuestPart,
    GuestRange, GuestReport, GuestResource, GuestRestriction, GuestRoot, GuestSource, GuestSpec, GuestStep,
    GuestStream, GuestTerminal, GuestUsage, GuestVariable, GuestYes, OsText, OsTextError,
};
pub use harness::{
    AgentPackage, Assembly, ConversationChoice, Harness, HarnessProfile, McpLaunch, PermissionRules,
    Persisted, PersistedKind, PersonalFile, PersonalForm, ProfileEnv, RecordedDirectory, SessionTuning,
    SharedEntry, ThinkingLimit, ToolRules, TranscriptEntry, TunedAgent, Wanted, WantedPlugin, WantedSkill,
};
pub use host::{Cidr, HostName, HostNameError, HostPattern, HostPatternError, HostTarget, PatternPort, Port};
pub use image::{ImageName, ImageNameError};
pub use judgement::{CheckResult, Conclusion, EvidenceNote, Judgement, Outcome, Signal, SignalWeight};
pub use launch::{
    BindSource, Control, Launch, LaunchArgument, Made, Need, OpenNeed, RootPart, Unmet, Workload,
};
pub use limits::{DEFAULT_PIDS, DefaultLimit, Limits, ReachedLimit, SCENARIO_TIME, UNATTENDED_TIME};
pub use model_access::{CredentialPlace, LoginFile, ModelAccess};
pub use model_forms::{input_digest, input_digests, input_forms, text_digest, without_reminders};
pub use model_log::{
    MODEL_LOG_FORMAT, ModelAnswer, ModelExchange, ModelItem, ModelRequest, ModelRow, OWN_REFUSAL, Repeated,
    SCRIPT_ACCEPTS_NONE, SCRIPT_EXHAUSTED, ServedBlock, ServedMessage, read_model_log,
};
pub use name::{AgentName, EnvName, InstanceKey, LibraryName, NameError, RunId, RunName};
pub use nearest::nearest;
pub use observation::{Observation, ProtocolFlaw, ServerSeen, SkillWay, Speaker, TurnOutcome};
pub use outside::{OUTSIDE, OutsideProgram};
pub use path::{AbsPath, PathError};
pub use pattern::{Letters, Pattern, PatternError, PatternFlags};
pub use plan::{
    Access, Credential, CredentialPart, Egress, EgressRule, EnvEntry, EnvGiver, EnvSource, FileContent,
    GitFile, HomeMode, Instance, McpServer, Mount, MountSource, Plan, PlannedFile, Plugin, Prompt, Purpose,
    Refusal, RuleEffect, RunFiles, RunValue, Skill, SshEntry, Workspace, WorkspaceMode,
};
pub use proof::{Checkup, CheckupState, ProbeResult, Proof, ProofRow, Verdict};
pub use quantity::{ByteSize, Cpus, QuantityError, TimeSpan, Usd};
pub use request_rule::{
    Method, MethodError, Methods, PathPattern, PathPatternError, PathRefusal, Paths, RequestAdmission,
    RequestDenial, RequestPath, RequestRule, request_allowed, requests_matter,
};
pub use result::{ErrorText, ScenarioResult, SuiteCount};
pub use run::{Completeness, Metrics, Missing, ModelUsage, RUN_FORMAT, Run, RunHead, RunResult, RunStatus};
pub use scrub::{
    PatientScrubStream, REDACTED_NAME, Reading, SCRUBBED_MAX, SCRUBBED_MIN, ScrubStream, Scrubber, Unescaped,
    Unsearchable, Unsearched, holds_redaction,
};
pub use secret::Secret;
pub use summary::{
    ConversationSource, DecisionMade, RunDigests, RunSummary, RunVerb, RunVerdict, SUMMARY_FORMAT, ToolCount,
};
pub use synthetic_addresses::{RESOLVER, RESOLVER_LISTENER, SyntheticAddress, SyntheticAddresses};

/// Version of the stored and printed form of [`Plan`]. Readers refuse a larger one.
pub const PLAN_FORMAT: u32 = 1;
pub use ssh::{SSH_AGENT_SOCKET, SshFound, SshPublicKey, SshPublicKeyError};
pub use suite_normaliser::{
    Excess, MOST_NORMALISERS, SuiteMatch, SuiteNormaliser, SuiteNormaliserError, TapeNormaliser, marked,
    normalised, places,
};
pub use tape::{
    BodyRef, ConversationKey, EXCHANGE_LINE, Exchange, ExchangeAnswer, ExchangeDelivery, ExchangeEnd,
    ExchangeRequest, TAPE_BYTES, TAPE_EXCHANGES, TAPE_FORMAT, TAPE_KIND, TAPE_REQUEST, TAPE_UNFOLDED,
    TAPE_WINDOW, TapeAgent, TapeForm, TapeHead, TapeId, TapeLeak, TapeLeaks, TapePart, TapeScenario,
    TapeSkillPlace, TapeTrees, TapeUntracked, TapeValue, TapeValues, canonical_json,
};
pub use trust::{TrustFile, TrustVariable, trust_variables};
pub use upgrade::{
    ChangedCheck, Moved, MovedInTapes, MovedKind, RecordAgain, SizeChange, UpgradeDrift, UpgradeOutcome,
    UpgradeReport, UpgradeRequests, UpgradedTape,
};
pub use used_outside::{USED_OUTSIDE_MAX, UsedOutside, may_use, path_words};
pub use visible::{
    is_hidden, visible, visible_bytes, visible_json, visible_lines, visible_name, visible_page, visible_start,
};
pub use wish::{PathUse, Wish, Wishes};
