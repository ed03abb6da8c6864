//! Starting, running side by side, and ending.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use belljar_egress::script::{
    AnsweredBy, Listen, ListenError, Script, ScriptReply, ScriptedModel, StartError, Turn,
};

use crate::client::{Client, DEADLINE, End, ask, asking, on_both, post, started};

#[test]
fn each_turn_is_played_once_however_many_ask_at_once() {
    const CLIENTS: usize = 12;
    const EACH: usize = 10;
    let script =
        (0..CLIENTS * EACH).fold(Script::new(), |script, turn| script.turn(Turn::text(turn.to_string())));
    on_both(&script, |model| {
        let heard: Vec<String> = std::thread::scope(|scope| {
            let ask_all = || {
                let mut client = Client::connect(model);
                (0..EACH).map(|_| client.ask(&asking("x")).text()).collect::<Vec<_>>()
            };
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask_all)).collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        assert_eq!(heard.len(), CLIENTS * EACH);
        assert_eq!(heard.iter().collect::<BTreeSet<_>>().len(), CLIENTS * EACH);
        assert_eq!(model.unplayed(), [0_usize; 0]);
        for (index, request) in model.requests().iter().enumerate() {
            assert_eq!((request.index, request.answered_by), (index, AnsweredBy::Turn(index)));
        }
    });
}

#[test]
fn a_slow_answer_does_not_hold_up_the_others() {
    let slow = Turn::text("slow").delay(Duration::from_secs(600));
    let model = started(Script::new().turn(slow).turn(Turn::text("quick")));
    let mut first = Client::connect(&model);
    first.send(&post("/v1/messages", "", asking("x").to_string().as_bytes()));
    model.wait_for_requests(1, DEADLINE).unwrap();
    assert_eq!(ask(&model, &asking("x")).text(), "quick");
    // The end does not wait for the slow response.
    let transcript = model.finish();
    assert_eq!(transcript.requests.len(), 2);
    assert_eq!(first.rest(), (Vec::new(), End::Closed));
}

#[test]
fn the_transcript_lists_unplayed_turns() {
    let model = started(Script::new().turn(Turn::text("a")).turn(Turn::text("b")));
    ask(&model, &asking("x"));
    let address = model.tcp_address().unwrap();
    let transcript = model.finish();
    assert_eq!((transcript.requests.len(), transcript.unplayed), (1, vec![1]));
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn addresses_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.sock");
    let model = ScriptedModel::start(Script::new(), Listen::unix(&path)).unwrap();
    assert_eq!(model.base_url(), "http://localhost");
    assert_eq!((model.socket_path(), model.tcp_address()), (Some(path.as_path()), None));
    let model = started(Script::new());
    let address = model.tcp_address().unwrap();
    assert!(address.ip().is_loopback() && address.port() != 0);
    assert_eq!((model.base_url(), model.socket_path()), (format!("http://{address}"), None));
}

#[test]
fn the_model_removes_its_own_socket_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.sock");
    let model = ScriptedModel::start(Script::new(), Listen::unix(&path)).unwrap();
    assert!(path.exists());
    let taken = ScriptedModel::start(Script::new(), Listen::unix(&path)).unwrap_err();
    assert!(matches!(taken, StartError::Listen(ListenError::BindUnix { .. })), "{taken:?}");
    assert!(path.exists());
    drop(model);
    assert!(!path.exists());

    let model = ScriptedModel::start(Script::new(), Listen::unix(&path)).unwrap();
    std::fs::rename(&path, directory.path().join("moved")).unwrap();
    std::fs::write(&path, "of someone else").unwrap();
    drop(model);
    assert!(path.exists());
}

#[test]
fn a_failed_start_names_the_reason() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = ScriptedModel::start(Script::new(), Listen::Loopback { port }).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot listen on 127.0.0.1:{port}"));
    let nowhere = ScriptedModel::start(Script::new(), Listen::unix("/nonexistent/model.sock")).unwrap_err();
    assert_eq!(nowhere.to_string(), "cannot listen on the unix socket /nonexistent/model.sock");
    let faulty = Script::new().turn(Turn::reply(ScriptReply::new()));
    let error = ScriptedModel::start(faulty, Listen::loopback()).unwrap_err();
    assert!(matches!(error, StartError::Script(_)), "{error:?}");
}

#[test]
fn a_bound_listener_is_served_and_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("handed.sock");
    let script = Script::new().turn(Turn::text("a"));
    let listener = UnixListener::bind(&path).unwrap();
    let model = ScriptedModel::start(script.clone(), Listen::BoundUnix(listener)).unwrap();
    assert_eq!(model.socket_path(), Some(path.as_path()));
    assert_eq!(ask(&model, &asking("x")).text(), "a");
    drop(model);
    assert!(path.exists());

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let model = ScriptedModel::start(script, Listen::BoundTcp(listener)).unwrap();
    assert_eq!(ask(&model, &asking("x")).text(), "a");
}

#[test]
fn a_model_lives_on_the_callers_runtime_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.sock");
    let script = Script::new().turn(Turn::text("a"));
    let model = runtime.block_on(ScriptedModel::start_here(script, Listen::unix(&path))).unwrap();
    let mut client = Client::connect(&model);
    let (notify, reported) = tokio::sync::oneshot::channel();
    let asking = std::thread::spawn(move || notify.send(client.ask(&asking("x")).text()));
    // The model is served only while its runtime runs.
    let text = runtime.block_on(async { tokio::time::timeout(DEADLINE, reported).await });
    assert_eq!(text.unwrap().unwrap(), "a");
    asking.join().unwrap().unwrap();
    drop(model);
    assert!(!path.exists());
}
