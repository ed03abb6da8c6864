use std::io;
use std::net::IpAddr;
use std::time::Duration;

use belljar_contract::{AddressClass, Destination};

use super::FetchUrl;
use super::url::UrlError;

/// Why a file cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("cannot resolve the name of {host}")]
    Resolve {
        host: Destination,
        #[source]
        cause: io::Error,
    },
    #[error("the name of {host} has no address")]
    NoAddress { host: Destination },
    /// An address that no server of files has.
    #[error("refusing to connect to {host}: its address {address} is {what}", what = .class.describe())]
    Address { host: Destination, address: IpAddr, class: AddressClass },
    #[error("refusing to fetch from {host} without TLS: its address {address} is public")]
    Clear { host: Destination, address: IpAddr },
    #[error("cannot connect to {host}")]
    Connect {
        host: Destination,
        #[source]
        cause: io::Error,
    },
    #[error("cannot connect to {host} within {within:?}")]
    Late { host: Destination, within: Duration },
    #[error("the TLS handshake with {host} failed")]
    Tls {
        host: Destination,
        #[source]
        cause: io::Error,
    },
    #[error("{host} has no valid server name for TLS")]
    Name { host: Destination },
    #[error("the proxy {proxy} refused to connect to {host}: status {status}")]
    Refused { proxy: Destination, host: Destination, status: u16 },
    #[error("the proxy {proxy} did not answer with HTTP")]
    Proxy { proxy: Destination },
    #[error("{host} does not speak HTTP")]
    Http {
        host: Destination,
        #[source]
        cause: hyper::Error,
    },
    #[error("{url} answered with status {status}")]
    Status { url: Box<FetchUrl>, status: u16 },
    #[error("{url} redirects to an address that is not a URL")]
    Location {
        url: Box<FetchUrl>,
        #[source]
        cause: Option<UrlError>,
    },
    #[error("{url} redirects to {to}, which is without TLS")]
    Downgrade { url: Box<FetchUrl>, to: Box<FetchUrl> },
    #[error("{url} redirects too often")]
    Redirects { url: Box<FetchUrl> },
    #[error("{url} has a content encoding that was not asked for")]
    Encoding { url: Box<FetchUrl> },
    #[error("{url} is larger than {limit} bytes")]
    TooLarge { url: Box<FetchUrl>, limit: u64 },
    #[error("{host} sent nothing for {silence:?}")]
    Silent { host: Destination, silence: Duration },
    #[error("{url} ended before it was complete")]
    Broken {
        url: Box<FetchUrl>,
        #[source]
        cause: hyper::Error,
    },
    /// The receiver of the bytes failed.
    #[error("cannot write what was received")]
    Kept(#[source] io::Error),
}
