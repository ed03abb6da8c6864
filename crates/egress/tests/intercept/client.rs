//! A client in the sandbox.

use crate::stage::Stage;
use crate::world::Speaks;
use belljar_egress::tls::{ChosenProtocol, ExtraRoots, Offer, TlsClient};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::task::JoinHandle;

pub enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

pub struct Client {
    pub sender: Sender,
    pub end: JoinHandle<belljar_egress::proxy::TunnelEnd>,
}

impl Client {
    /// A connection to `api.test` through the stage.
    pub async fn connect(stage: &Stage, speaks: Speaks) -> Self {
        Self::connect_to(stage, "api.test", speaks).await
    }

    pub async fn connect_to(stage: &Stage, host: &str, speaks: Speaks) -> Self {
        let (stream, end) = stage.tunnel(&format!("{host}:443"));
        let tls = TlsClient::new(&ExtraRoots(vec![stage.ca.certificate().clone()])).unwrap();
        let offer = match speaks {
            Speaks::Http1 => Offer::Http1,
            Speaks::Http2 => Offer::Http2And1,
        };
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let (stream, chosen) = tls.handshake(stream, name, offer).await.unwrap();
        let stream = TokioIo::new(stream);
        let sender = match chosen {
            ChosenProtocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            ChosenProtocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        Self { sender, end }
    }

    /// Sends a request; a target that is a path gets the host that it is for.
    pub async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Response<Incoming> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                if !request.headers().contains_key("host") {
                    request.headers_mut().insert("host", "api.test".parse().unwrap());
                }
                sender.ready().await.unwrap();
                sender.send_request(request).await.unwrap()
            }
            Sender::Http2(sender) => {
                if request.uri().authority().is_none() {
                    let target = request.uri().path_and_query().unwrap().clone();
                    let uri = Uri::builder().scheme("https").authority("api.test").path_and_query(target);
                    *request.uri_mut() = uri.build().unwrap();
                }
                sender.send_request(request).await.unwrap()
            }
        }
    }

    pub async fn get(&mut self, target: &str) -> (u16, String) {
        let response = self.send(get(target).body(Full::default()).unwrap()).await;
        let status = response.status().as_u16();
        (status, text(response).await)
    }
}

pub fn get(target: &str) -> hyper::http::request::Builder {
    Request::builder().uri(target)
}

pub async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}
