//! Headers and parameters that make some servers act on another method or path than those in the request line. Where a
//! rule restricts methods or paths, a request with one of them is refused: the server must act on what was checked.
//!
//! A body can also carry such a parameter (`_method` in a form). Bodies are not inspected, so a rule that allows `POST`
//! allows whatever the server does with the body.

/// Names are compared in lower case and with `-` for `_`: servers that pass headers as variables treat both alike.
pub(crate) const HEADERS: [(&str, &str); 13] = [
    ("destination", "WebDAV: the second path of COPY and MOVE"),
    ("x-forwarded-method", "proxies that ask another service for permission"),
    ("x-forwarded-path", "proxies that rewrite paths"),
    ("x-forwarded-uri", "proxies that ask another service for permission"),
    ("x-http-method", "Microsoft's services"),
    ("x-http-method-override", "Google's services, and most frameworks"),
    ("x-http-path-override", "some gateways"),
    ("x-method-override", "IBM's services, and some frameworks"),
    ("x-original-method", "nginx, asking another service for permission"),
    ("x-original-uri", "nginx, asking another service for permission"),
    ("x-original-url", "IIS and Symfony: replaces the path"),
    ("x-override-url", "some gateways"),
    ("x-rewrite-url", "IIS and Symfony: replaces the path"),
];

/// Parameters of the query, compared in the same way after percent-decoding.
pub(crate) const PARAMETERS: [(&str, &str); 4] = [
    ("-httpmethod", "Salesforce"),
    ("-method", "Rails, Laravel, Symfony"),
    ("x-http-method", "Microsoft's services"),
    ("x-http-method-override", "frameworks that read headers and parameters alike"),
];

/// Why a request may be treated as another one, if it may.
pub(crate) fn find<'h>(headers: impl IntoIterator<Item = &'h str>, query: Option<&str>) -> Option<String> {
    let header = headers.into_iter().map(plain).find(|name| listed(&HEADERS, name));
    if let Some(name) = header {
        return Some(format!("the header `{name}` can replace the method or path that was checked"));
    }
    let names = query.into_iter().flat_map(|query| query.split(['&', ';']));
    let names = names.map(|pair| plain(&decoded(pair.split('=').next().unwrap_or_default())));
    let name = names.into_iter().find(|name| listed(&PARAMETERS, name))?;
    Some(format!("the parameter `{name}` can replace the method or path that was checked"))
}

fn listed(table: &[(&str, &str)], name: &str) -> bool {
    table.iter().any(|(known, _why)| *known == name)
}

fn plain(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace('_', "-")
}

/// Decodes percent-encoding once; invalid sequences stay.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let two = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        match two.filter(|_| *byte == b'%').and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_found_in_every_spelling() {
        for header in ["X-HTTP-Method-Override", "x_http_method_override", "X-Original-URL", "X_Rewrite-Url"]
        {
            assert!(find(["accept", header], None).is_some(), "{header}");
        }
        for query in ["_method=DELETE", "a=1&_METHOD=x", "%5fmethod=put", "_HttpMethod=PATCH", "a;_method"] {
            assert!(find([], Some(query)).is_some(), "{query}");
        }
        for query in ["method=DELETE", "a=_method", "my_method=1", "%zz=1", "%", ""] {
            assert_eq!(find(["accept", "x-http-methods", "host"], Some(query)), None, "{query}");
        }
    }
}
