use super::*;
use crate::text_digest;

fn log(rows: &[ModelRow]) -> (String, Digest) {
    let mut chain = EgressChain::START;
    let mut text = String::new();
    for row in rows {
        let (line, after) = chain.line(&serde_json::to_string(row).unwrap());
        text.push_str(&line);
        chain = after;
    }
    (text, chain.head().unwrap())
}

fn rows() -> Vec<ModelRow> {
    let request = ModelRequest {
        session: Some("s".to_owned()),
        items: vec![ModelItem::Text { text: text_digest("go") }],
        ..ModelRequest::default()
    };
    let message = ServedMessage {
        id: "msg_1".to_owned(),
        stop: Some("end_turn".to_owned()),
        blocks: vec![ServedBlock::Text { text: text_digest("hi"), open: None }],
    };
    let answer = ModelAnswer { status: Some(200), end: ExchangeEnd::Complete, message: Some(message) };
    vec![
        ModelRow::Opened { format: MODEL_LOG_FORMAT, run: RunId::new(7) },
        ModelRow::Asked { exchange: 0, at_ms: 1, request },
        ModelRow::Answered { exchange: 0, answer },
        ModelRow::Closed { exchanges: 1 },
    ]
}

#[test]
fn a_whole_log_is_read_back() {
    let (text, head) = log(&rows());
    let read = read_model_log(&text, head).unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].answer.as_ref().unwrap().message.as_ref().unwrap().id, "msg_1");
}

#[test]
fn a_log_that_is_cut_changed_or_another_one_is_not_read() {
    let (text, head) = log(&rows());
    for at in 0..text.len() {
        assert!(read_model_log(&text[..at], head).is_err(), "cut at {at}");
    }
    let changed = text.replace("msg_1", "msg_2");
    assert!(read_model_log(&changed, head).unwrap_err().contains("model.jsonl:3"));
    let (other, other_head) = log(&rows()[..3]);
    assert!(read_model_log(&other, other_head).unwrap_err().contains("cut off"));
    assert!(read_model_log(&text, other_head).unwrap_err().contains("not the file"));
    let mut twice = rows();
    twice.insert(3, twice[2].clone());
    let (text, head) = log(&twice);
    assert!(read_model_log(&text, head).is_err());
    let mut newer = rows();
    newer[0] = ModelRow::Opened { format: 2, run: RunId::new(7) };
    let (text, head) = log(&newer);
    assert!(read_model_log(&text, head).unwrap_err().contains("newer"));
}

/// A log of the first version, from a run with Claude Code 2.1.197.
const FIRST_VERSION: &str = include_str!("../fixtures/model-log-v1.jsonl");

#[test]
fn the_first_version_is_still_read() {
    let head = "sha256:4bf167faca95e112f01f68286654beb82980ae85ebe2d8b68dc71175e59d9f47";
    let read = read_model_log(FIRST_VERSION, Digest::parse(head).unwrap()).unwrap();
    let blocks = |at: usize| read[at].answer.as_ref().unwrap().message.as_ref().unwrap().blocks.len();
    assert_eq!((read.len(), blocks(0), blocks(1)), (2, 3, 1));
    assert_eq!(read[1].request.repeats.unwrap().exchange, 0);
}
