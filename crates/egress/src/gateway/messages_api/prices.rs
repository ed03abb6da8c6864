//! The price of tokens: a dated table, kept as data.

use serde::Deserialize;

use super::usage::TokenCount;
use crate::gateway::money::Cost;

/// Upper limit for a plausible price, in dollars per million tokens.
const MAX_DOLLARS: f64 = 100_000.0;

#[derive(Debug, Clone, PartialEq)]
pub struct PriceTable {
    as_of: String,
    web_search_micros_each: u64,
    entries: Vec<Entry>,
}

#[derive(Debug, thiserror::Error)]
pub enum PriceTableError {
    #[error("the price table is malformed")]
    Form(#[source] toml::de::Error),
    #[error("the price `{0}` must be between 0 and {MAX_DOLLARS} dollars per million tokens")]
    Price(f64),
    #[error("the price table has two entries for `{0}` with the same speed")]
    Twice(String),
}

/// The speed that a request asks for, which has a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Speed {
    #[default]
    Standard,
    /// The faster tier, which costs more.
    Fast,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    models: Vec<String>,
    speed: Speed,
    prices: Prices,
    long: Option<(u64, Prices)>,
}

/// Prices of one model in millionths of a dollar per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Prices {
    input: u64,
    output: u64,
    cache_write: u64,
    cache_write_hour: u64,
    cache_read: u64,
}

/// How long cache entries of a request may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::gateway) enum CacheWrites {
    FiveMinutes,
    /// The request may ask for an hour, which costs more.
    PerhapsHour,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::gateway) struct Priced<'t> {
    entry: &'t Entry,
    web_search_micros_each: u64,
}

impl PriceTable {
    /// The table of this version of belljar.
    ///
    /// # Panics
    /// Never: a test parses it.
    pub fn built_in() -> Self {
        Self::parse(include_str!("prices.toml")).expect("a test parses the built-in table")
    }

    /// # Errors
    /// See [`PriceTableError`].
    pub fn parse(text: &str) -> Result<Self, PriceTableError> {
        let file: File = toml::from_str(text).map_err(PriceTableError::Form)?;
        let File { as_of, source: _, web_search_per_thousand, price } = file;
        let entries = price.into_iter().map(PriceSpec::entry).collect::<Result<Vec<_>, _>>()?;
        let mut seen = Vec::new();
        for entry in &entries {
            for model in &entry.models {
                if seen.contains(&(model, entry.speed)) {
                    return Err(PriceTableError::Twice(model.clone()));
                }
                seen.push((model, entry.speed));
            }
        }
        let web_search_micros_each = micros(web_search_per_thousand)? / 1000;
        Ok(Self { as_of, web_search_micros_each, entries })
    }

    /// The date of the prices.
    pub fn as_of(&self) -> &str {
        &self.as_of
    }

    pub(in crate::gateway) fn find(&self, model: &str, speed: Speed) -> Option<Priced<'_>> {
        let of = |known: &String| is_version_of(model, known);
        let mut fitting = self.entries.iter().filter(|entry| entry.speed == speed);
        let entry = fitting.find(|entry| entry.models.iter().any(of))?;
        Some(Priced { entry, web_search_micros_each: self.web_search_micros_each })
    }

    /// The cost of a response, if the model's price is known.
    pub fn cost(&self, model: &str, speed: Speed, tokens: &TokenCount) -> Option<Cost> {
        self.find(model, speed).map(|priced| priced.cost(tokens))
    }
}

impl Priced<'_> {
    pub fn cost(self, tokens: &TokenCount) -> Cost {
        let TokenCount { input, output, cache_creation, cache_creation_hour, cache_read, web_searches } =
            *tokens;
        let all_input = input.saturating_add(cache_creation).saturating_add(cache_read);
        let prices = self.at(all_input);
        let hour = cache_creation_hour.min(cache_creation);
        let searches = web_searches.saturating_mul(1_000_000);
        Cost::of(input, prices.input)
            .plus(Cost::of(output, prices.output))
            .plus(Cost::of(cache_creation - hour, prices.cache_write))
            .plus(Cost::of(hour, prices.cache_write_hour))
            .plus(Cost::of(cache_read, prices.cache_read))
            .plus(Cost::of(searches, self.web_search_micros_each))
    }

    /// The maximum cost of this much input.
    pub fn input_at_most(self, tokens: u64, cache: CacheWrites) -> Cost {
        let Prices { input, output: _, cache_write, cache_write_hour, cache_read } = self.at(tokens);
        let dearest = input.max(cache_write).max(cache_read);
        match cache {
            CacheWrites::FiveMinutes => Cost::of(tokens, dearest),
            CacheWrites::PerhapsHour => Cost::of(tokens, dearest.max(cache_write_hour)),
        }
    }

    /// The maximum cost of this much output after this much input.
    pub fn output_at_most(self, input_tokens: u64, tokens: u64) -> Cost {
        Cost::of(tokens, self.at(input_tokens).output)
    }

    fn at(self, input_tokens: u64) -> Prices {
        match self.entry.long {
            Some((above, long)) if input_tokens > above => long,
            Some(_) | None => self.entry.prices,
        }
    }
}

/// Whether `model` is `known` itself, or a dated or marked form of it. A longer name is another model.
fn is_version_of(model: &str, known: &str) -> bool {
    let Some(rest) = model.strip_prefix(known) else { return false };
    let rest = match rest.split_once('[') {
        Some((rest, mark)) if mark.ends_with(']') => rest,
        Some(_) | None => rest,
    };
    let dated = |rest: &str| rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_digit());
    rest.is_empty() || rest == "-latest" || rest.strip_prefix(['-', '@']).is_some_and(dated)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    as_of: String,
    #[expect(dead_code, reason = "for the reader of the file")]
    source: String,
    web_search_per_thousand: f64,
    price: Vec<PriceSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceSpec {
    models: Vec<String>,
    #[serde(default)]
    speed: Speed,
    input: f64,
    output: f64,
    cache_write: f64,
    cache_write_hour: f64,
    cache_read: f64,
    long: Option<LongSpec>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongSpec {
    above_input_tokens: u64,
    input: f64,
    output: f64,
    cache_write: f64,
    cache_write_hour: f64,
    cache_read: f64,
}

impl PriceSpec {
    fn entry(self) -> Result<Entry, PriceTableError> {
        let Self { models, speed, input, output, cache_write, cache_write_hour, cache_read, long } = self;
        let usual = prices([input, output, cache_write, cache_write_hour, cache_read])?;
        let long = long.map(|long| {
            let LongSpec { above_input_tokens, input, output, cache_write, cache_write_hour, cache_read } =
                long;
            let prices = prices([input, output, cache_write, cache_write_hour, cache_read])?;
            Ok::<_, PriceTableError>((above_input_tokens, prices))
        });
        Ok(Entry { models, speed, prices: usual, long: long.transpose()? })
    }
}

fn prices(
    [input, output, cache_write, cache_write_hour, cache_read]: [f64; 5],
) -> Result<Prices, PriceTableError> {
    Ok(Prices {
        input: micros(input)?,
        output: micros(output)?,
        cache_write: micros(cache_write)?,
        cache_write_hour: micros(cache_write_hour)?,
        cache_read: micros(cache_read)?,
    })
}

fn micros(dollars: f64) -> Result<u64, PriceTableError> {
    if !(0.0..=MAX_DOLLARS).contains(&dollars) {
        return Err(PriceTableError::Price(dollars));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 10^11, checked above"
    )]
    Ok((dollars * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_name_is_another_model() {
        for (model, known) in [
            ("claude-opus-4", true),
            ("claude-opus-4-20250514", true),
            ("claude-opus-4@20250514", true),
            ("claude-opus-4-latest", true),
            ("claude-opus-4[1m]", true),
            ("claude-opus-4-9", false),
            ("claude-opus-45", false),
            ("claude-opus-4-2025051", false),
            ("claude-opus", false),
        ] {
            assert_eq!(is_version_of(model, "claude-opus-4"), known, "{model}");
        }
    }

    #[test]
    fn the_built_in_table_has_prices_for_known_models_only() {
        let table = PriceTable::built_in();
        let million = TokenCount {
            input: 1_000_000,
            output: 1_000_000,
            cache_creation: 1_000_000,
            cache_creation_hour: 0,
            cache_read: 1_000_000,
            web_searches: 0,
        };
        let micros = |model, speed| table.cost(model, speed, &million).map(Cost::micros);
        assert_eq!(micros("claude-opus-4-8", Speed::Standard), Some(36_750_000));
        assert_eq!(micros("claude-opus-4-8", Speed::Fast), Some(73_500_000));
        assert_eq!(micros("claude-haiku-4-5-20251001", Speed::Standard), Some(7_350_000));
        assert_eq!(micros("claude-sonnet-4-6", Speed::Standard), Some(22_050_000));
        assert_eq!(micros("claude-opus-5-5", Speed::Standard), Some(29_200_000));
        assert_eq!(micros("claude-opus-5-5[1m]", Speed::Fast), Some(58_400_000));
        assert_eq!(micros("claude-fable-5-2", Speed::Standard), Some(58_200_000));
        assert_eq!(micros("claude-sonnet-5-5", Speed::Standard), Some(14_600_000));
        assert_eq!(micros("claude-sonnet-5-5", Speed::Fast), None);
        // Three million input tokens are a long request.
        assert_eq!(micros("claude-haiku-5-5", Speed::Standard), Some(3_675_000));
        assert_eq!(micros("claude-sonnet-4-5", Speed::Standard), Some(36_600_000));
        assert_eq!(micros("claude-haiku-4-5", Speed::Fast), None);
        assert_eq!(micros("claude-opus-9", Speed::Standard), None);
        assert_eq!(table.as_of().len(), 10);
    }

    #[test]
    fn every_bucket_and_the_hour_have_their_price() {
        let table = PriceTable::built_in();
        let cost = |tokens| table.cost("claude-opus-4-8", Speed::Standard, &tokens).unwrap().micros();
        let none = TokenCount::default();
        assert_eq!(cost(TokenCount { input: 1000, ..none }), 5_000);
        assert_eq!(cost(TokenCount { output: 1000, ..none }), 25_000);
        assert_eq!(cost(TokenCount { cache_creation: 1000, ..none }), 6_250);
        assert_eq!(cost(TokenCount { cache_creation: 1000, cache_creation_hour: 400, ..none }), 7_750);
        assert_eq!(cost(TokenCount { cache_read: 1000, ..none }), 500);
        assert_eq!(cost(TokenCount { web_searches: 2, ..none }), 20_000);
    }

    #[test]
    fn a_table_with_a_fault_is_not_used() {
        let price = |input: &str| {
            format!(
                "as_of = 'x'\nsource = 'x'\nweb_search_per_thousand = 1.0\n[[price]]\nmodels = ['m', 'n']\n\
                 input = {input}\noutput = 1.0\ncache_write = 1.0\ncache_write_hour = 1.0\ncache_read = 1.0\n"
            )
        };
        assert!(PriceTable::parse(&price("1.0")).is_ok());
        for bad in ["-1.0", "nan", "inf", "'1'"] {
            assert!(PriceTable::parse(&price(bad)).is_err(), "{bad}");
        }
        let twice = price("1.0").replace("'n'", "'m'");
        assert!(matches!(PriceTable::parse(&twice), Err(PriceTableError::Twice(_))));
        assert!(PriceTable::parse(&price("1.0").replace("cache_read", "cache_reads")).is_err());
    }
}
