//! Pages of one HTML file, without scripts and without external resources.

/// A page; `body` is HTML.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>belljar: {title}</title>\
         <style>body{{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em}}\
         table{{border-collapse:collapse;width:100%}}td,th{{border-bottom:1px solid #8884;padding:.3em .6em;\
         text-align:left;vertical-align:top}}.bad{{background:#d002;font-weight:600}}.none{{opacity:.6}}\
         pre{{overflow:auto;background:#8881;padding:.8em}}</style>{body}</html>\n"
    )
}

/// A text for the place between two tags, or within double quotes.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
