//! What the agent itself and each of its sub-agents said, followed through the exchanges of their conversations.

use super::index::Index;
use super::input::fits;
use belljar_contract::{
    CallId, ClaimedBlock, Digest, ExchangeEnd, FrameClaim, FrameSeen, ModelItem, ServedBlock, text_digest,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A call that a frame shows.
pub(super) struct Framed<'a> {
    pub parent: Option<&'a CallId>,
    pub is_returned: bool,
    pub host: Option<&'a str>,
}

/// Where one who speaks stands.
#[derive(Default)]
struct Chain<'a> {
    exchange: Option<usize>,
    next_block: usize,
    agent: Option<&'a str>,
    /// Texts of the current message that frames show.
    texts: BTreeSet<Digest>,
    /// Whether the conversation may continue from another point: it was interrupted or compacted.
    may_jump: bool,
}

/// What the agent itself said last in a turn.
pub(super) struct LastSpoken<'a> {
    pub texts: BTreeSet<Digest>,
    pub stop: Option<&'a str>,
    /// The exchange that served it.
    pub exchange: usize,
    /// What of the message no frame shows.
    pub unshown: Option<String>,
}

/// A turn that ended.
pub(super) struct EndedTurn<'a> {
    /// Whether a slash command began it, so that the agent may have answered by itself.
    pub is_command: bool,
    /// Texts that the agent wrote itself.
    pub own_texts: BTreeSet<Digest>,
    /// What the agent itself said last; none where the model did not speak.
    pub spoken: Option<LastSpoken<'a>>,
}

pub(super) struct Speakers<'a> {
    index: &'a Index<'a>,
    chains: BTreeMap<Option<&'a CallId>, Chain<'a>>,
    pub framed: BTreeMap<&'a str, Framed<'a>>,
    /// Sessions of the agent itself.
    pub sessions: BTreeSet<&'a str>,
    prompts: BTreeSet<Digest>,
    /// The message that began the turn and those after it, each with whether it is a slash command.
    sent: VecDeque<bool>,
    own_texts: BTreeSet<Digest>,
    spoke_in_turn: bool,
    /// Whether belljar ever stopped a turn.
    pub was_interrupted: bool,
}

impl<'a> Speakers<'a> {
    pub fn new(index: &'a Index<'a>) -> Self {
        Self {
            index,
            chains: BTreeMap::new(),
            framed: BTreeMap::new(),
            sessions: BTreeSet::new(),
            prompts: BTreeSet::new(),
            sent: VecDeque::new(),
            own_texts: BTreeSet::new(),
            spoke_in_turn: false,
            was_interrupted: false,
        }
    }

    pub fn sent(&mut self, text: Digest, is_command: bool) {
        self.prompts.insert(text);
        self.sent.push_back(is_command);
    }

    pub fn interrupted(&mut self) {
        self.was_interrupted = true;
        self.chains.values_mut().for_each(|chain| chain.may_jump = true);
    }

    pub fn compacted(&mut self) {
        self.chains.values_mut().for_each(|chain| chain.may_jump = true);
    }

    /// Takes a message, or says what of it was not served.
    pub fn spoke(&mut self, frame: &'a FrameSeen) -> Result<(), String> {
        let FrameClaim::Spoken { parent, message, is_synthetic, stop, blocks } = &frame.claim else {
            return Ok(());
        };
        if *is_synthetic {
            let is_text = |block: &ClaimedBlock| matches!(block, ClaimedBlock::Text { .. });
            let digest = |block: &ClaimedBlock| match block {
                ClaimedBlock::Text { digest, .. } => Some(*digest),
                ClaimedBlock::Thinking(_) | ClaimedBlock::ToolUse { .. } | ClaimedBlock::Other => None,
            };
            self.own_texts.extend(blocks.iter().filter(|_| parent.is_none()).filter_map(digest));
            let own = parent.is_none()
                || parent.as_ref().is_some_and(|call| self.framed.contains_key(call.as_str()));
            return if blocks.iter().all(is_text) && own {
                Ok(())
            } else {
                Err("the agent itself wrote more than a text".to_owned())
            };
        }
        if let Some(call) = parent
            && !self.framed.contains_key(call.as_str())
        {
            return Err(format!("a sub-agent of the call {call}, which no frame before shows"));
        }
        let Some(id) = message else { return Err("a message of the model without an id".to_owned()) };
        let exchange = self.follow(frame, parent.as_ref(), id)?;
        let served = self.index.message(exchange);
        if stop.is_some() && served.and_then(|served| served.stop.as_ref()) != stop.as_ref() {
            return Err(format!("the message {id} stopped for another reason"));
        }
        self.spoke_in_turn |= parent.is_none();
        for block in blocks {
            self.block(exchange, parent.as_ref(), id, block)?;
        }
        Ok(())
    }

    /// The exchange that served the message, which must go on from where the speaker stands.
    fn follow(
        &mut self,
        frame: &'a FrameSeen,
        parent: Option<&'a CallId>,
        id: &str,
    ) -> Result<usize, String> {
        let index = self.index;
        let chain = self.chains.entry(parent).or_default();
        let current = chain.exchange;
        let goes_on_with = current.filter(|at| index.message(*at).is_some_and(|message| message.id == *id));
        let fits = |at: &&usize| {
            let request = &index.exchanges[**at].request;
            let session = index.is_in_session(**at, frame.session.as_deref());
            let agent = match (parent, request.agent.as_deref()) {
                (None, agent) => agent.is_none(),
                (Some(_), Some(agent)) => chain.agent.is_none_or(|known| known == agent),
                (Some(_), None) => false,
            };
            session && agent && index.exchanges[**at].at_ms <= frame.offset_ms
        };
        let mut served = index.with_message(id).iter().filter(fits);
        let later = served.clone().find(|at| current.is_none_or(|current| **at > current)).copied();
        if let Some(exchange) = goes_on_with
            // A service that gives every message the same id has sent another one once this one is shown.
            && (later.is_none() || unshown(index, exchange, chain.next_block).is_some())
        {
            let same = index.is_in_session(exchange, frame.session.as_deref());
            return if same { Ok(exchange) } else { Err(format!("the message {id} in another session")) };
        }
        let Some(exchange) = later else {
            return Err(match served.next() {
                Some(_) => format!("the message {id} again, after a later one"),
                None => format!("the message {id}, which the model did not send in this conversation"),
            });
        };
        let unshown =
            current.filter(|_| !chain.may_jump).and_then(|current| unshown(index, current, chain.next_block));
        let jumps = chain.may_jump;
        *chain = Chain {
            exchange: Some(exchange),
            agent: index.exchanges[exchange].request.agent.as_deref(),
            ..Chain::default()
        };
        if let Some(what) = unshown {
            return Err(what);
        }
        if parent.is_none() {
            self.sessions.extend(index.exchanges[exchange].request.session.as_deref());
        }
        let goes_on = match current {
            None => parent.is_some() || self.answers_a_prompt(exchange),
            Some(_) if jumps => true,
            Some(current)
                if index.exchanges[current].request.session != index.exchanges[exchange].request.session =>
            {
                self.answers_a_prompt(exchange)
            }
            Some(current) => goes_on(index, current, exchange),
        };
        if goes_on { Ok(exchange) } else { Err(format!("the message {id} belongs to another conversation")) }
    }

    fn answers_a_prompt(&self, exchange: usize) -> bool {
        let is_prompt =
            |item: &ModelItem| matches!(item, ModelItem::Text { text } if self.prompts.contains(text));
        self.is_command() || self.index.has(exchange, is_prompt)
    }

    fn block(
        &mut self,
        exchange: usize,
        parent: Option<&'a CallId>,
        id: &str,
        block: &'a ClaimedBlock,
    ) -> Result<(), String> {
        let Some(message) = self.index.message(exchange) else { return Ok(()) };
        let Some(chain) = self.chains.get_mut(&parent) else { return Ok(()) };
        let rest = &message.blocks[chain.next_block.min(message.blocks.len())..];
        // The agent shows no frame for an empty text or a block that it does not know.
        let shown = rest.iter().position(|served| !is_silent(served)).unwrap_or(rest.len());
        let Some(served) = rest.get(shown) else {
            return match block {
                ClaimedBlock::Other => Ok(()),
                ClaimedBlock::Text { .. } | ClaimedBlock::Thinking(_) | ClaimedBlock::ToolUse { .. } => {
                    Err(format!("more blocks of the message {id} than the model sent"))
                }
            };
        };
        let differs = |what: &str| Err(format!("{what} of the message {id} is not what the model sent"));
        match (block, served) {
            (ClaimedBlock::Other, _) => return Ok(()),
            (ClaimedBlock::Text { digest, text }, ServedBlock::Text { text: sent, open }) => {
                let begun = open.as_ref().is_some_and(|open| open.trim().starts_with(text.trim()));
                if digest != sent && !begun {
                    return differs("a text");
                }
                chain.texts.insert(*digest);
            }
            (ClaimedBlock::Thinking(digest), ServedBlock::Thinking { text }) => {
                if digest != text {
                    return differs("a thought");
                }
            }
            (
                ClaimedBlock::ToolUse { call, tool, input, host },
                ServedBlock::ToolUse { call: sent, tool: named, input: forms },
            ) => {
                if call.as_str() != sent {
                    return differs("a call");
                }
                if tool != named {
                    return differs(&format!("the tool of the call {call}"));
                }
                if !fits(self.index, exchange, sent, tool, forms, input) {
                    return differs(&format!("the input of the call {call}"));
                }
                let framed = Framed { parent, is_returned: false, host: host.as_deref() };
                if self.framed.insert(call.as_str(), framed).is_some() {
                    return Err(format!("the call {call} a second time"));
                }
            }
            (ClaimedBlock::Text { .. } | ClaimedBlock::Thinking(_) | ClaimedBlock::ToolUse { .. }, _) => {
                return differs("a block");
            }
        }
        chain.next_block += shown + 1;
        Ok(())
    }

    /// Whether a slash command began the turn.
    fn is_command(&self) -> bool {
        self.sent.front() == Some(&true)
    }

    /// Ends a turn. The agent takes plain messages up in the turn that runs, and a command after it.
    pub fn end_turn(&mut self) -> EndedTurn<'a> {
        let is_command = self.is_command();
        self.sent.pop_front();
        while self.sent.front() == Some(&false) {
            self.sent.pop_front();
        }
        let spoken = std::mem::take(&mut self.spoke_in_turn).then(|| self.last_spoken()).flatten();
        EndedTurn { is_command, own_texts: std::mem::take(&mut self.own_texts), spoken }
    }

    fn last_spoken(&self) -> Option<LastSpoken<'a>> {
        let chain = self.chains.get(&None)?;
        let exchange = chain.exchange?;
        let unshown = (!chain.may_jump).then(|| unshown(self.index, exchange, chain.next_block)).flatten();
        let stop = self.index.message(exchange).and_then(|message| message.stop.as_deref());
        Some(LastSpoken { texts: chain.texts.clone(), stop, exchange, unshown })
    }
}

/// Whether the agent shows no frame for a block.
fn is_silent(block: &ServedBlock) -> bool {
    match block {
        ServedBlock::Text { text, open: _ } | ServedBlock::Thinking { text } => *text == text_digest(""),
        ServedBlock::Other { .. } => true,
        ServedBlock::ToolUse { .. } => false,
    }
}

/// What a message that was sent to its end has beyond the blocks that frames show.
fn unshown(index: &Index<'_>, exchange: usize, next_block: usize) -> Option<String> {
    let whole =
        index.exchanges[exchange].answer.as_ref().is_some_and(|answer| answer.end == ExchangeEnd::Complete);
    let message = index.message(exchange).filter(|_| whole)?;
    let missing = message.blocks.iter().skip(next_block).any(|block| !is_silent(block));
    missing.then(|| format!("the model sent more in the message {} than the frames show", message.id))
}

/// Whether a request has the message before it in its history.
fn goes_on(index: &Index<'_>, before: usize, exchange: usize) -> bool {
    let whole =
        index.exchanges[before].answer.as_ref().is_some_and(|answer| answer.end == ExchangeEnd::Complete);
    let Some(message) = index.message(before).filter(|_| whole) else { return true };
    let is_call = |block: &&ServedBlock| matches!(block, ServedBlock::ToolUse { .. });
    let known = message.blocks.iter().find(is_call).or(message.blocks.iter().find(|block| !is_silent(block)));
    match known {
        Some(ServedBlock::ToolUse { call, .. }) => {
            index.has(exchange, |item| matches!(item, ModelItem::Called { call: of, .. } if of == call))
        }
        Some(ServedBlock::Text { text, .. }) => {
            index.has(exchange, |item| matches!(item, ModelItem::Said { text: said } if said == text))
        }
        // Thoughts need not be repeated.
        Some(ServedBlock::Thinking { .. } | ServedBlock::Other { .. }) | None => true,
    }
}
