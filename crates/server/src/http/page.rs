//! The web page, embedded in the binary: files that `build.rs` made from `ui/`, or the plain page in `fallback/`.

/// One file of the page, with the headers it is served with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The path it answers to, such as `/` or `/assets/index-4f2a.js`.
    pub path: &'static str,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// `Cache-Control`: for ever where the name holds a hash of the content, else to be asked again each time.
    pub cache_control: &'static str,
    /// `ETag`, a strong one with its quotes. It is the body's; a client that sends it as `If-None-Match` gets 304.
    pub etag: &'static str,
    /// The file as it is.
    pub body: &'static [u8],
    /// The file compressed, for clients whose `Accept-Encoding` names gzip; send `Vary: Accept-Encoding` with either.
    pub gzip: Option<&'static [u8]>,
}

/// `Content-Security-Policy` of every page: scripts, styles and data from this server and from nowhere else, nothing
/// inline, never in a frame. <https://www.w3.org/TR/CSP3/>
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

static PAGE: (bool, &[Asset]) = include!(concat!(env!("OUT_DIR"), "/page_assets.rs"));

/// The file at a path, query string excluded; `/index.html` is the same as `/`.
pub fn asset(path: &str) -> Option<Asset> {
    let path = if path == "/index.html" { "/" } else { path };
    PAGE.1.iter().find(|asset| asset.path == path).copied()
}

/// Whether the page with plots is embedded, and not the plain one.
pub fn is_built() -> bool {
    PAGE.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> &'static str {
        let asset = asset(path).unwrap_or_else(|| panic!("no {path} is embedded"));
        std::str::from_utf8(asset.body).expect("UTF-8")
    }

    /// The values of `src="…"` and `href="…"`, as absolute paths.
    fn links(html: &str) -> Vec<String> {
        let values = ["src=\"", "href=\""].iter().flat_map(|key| html.split(key).skip(1));
        let values = values.filter_map(|rest| rest.split('"').next());
        let files = values.filter(|link| !link.starts_with("data:") && !link.starts_with('#'));
        files.map(|link| format!("/{}", link.trim_start_matches("./"))).collect()
    }

    #[test]
    fn every_file_the_page_loads_is_embedded() {
        let links = links(text("/"));
        assert!(links.len() >= 2, "a script and a style sheet at least: {links:?}");
        for link in links {
            assert!(asset(&link).is_some(), "{link} is not embedded");
        }
    }

    #[test]
    fn only_names_with_a_hash_are_kept_for_ever() {
        for asset in PAGE.1 {
            let expected = asset.path.starts_with("/assets/");
            assert_eq!(asset.cache_control.contains("immutable"), expected, "{}", asset.path);
        }
        assert_eq!(asset("/").map(|asset| asset.cache_control), Some("no-cache"));
    }

    #[test]
    fn headers_are_those_of_the_content() {
        for asset in PAGE.1 {
            assert!(asset.etag.len() == 18 && asset.etag.starts_with('"') && asset.etag.ends_with('"'), "{asset:?}");
            let gzip = asset.gzip.unwrap_or(&[0x1f, 0x8b]);
            assert_eq!(gzip.get(..2), Some([0x1f, 0x8b].as_slice()), "{} is not gzip", asset.path);
        }
        assert_eq!(asset("/").map(|asset| asset.content_type), Some("text/html; charset=utf-8"));
    }

    #[test]
    fn the_policy_suits_the_page() {
        let html = text("/");
        assert!(!html.contains("<style") && !html.contains(" style="), "inline styles are forbidden by the policy");
        assert!(html.split("<script").skip(1).all(|tag| tag.contains("src=")), "inline scripts are forbidden");
        assert!(!CONTENT_SECURITY_POLICY.contains("unsafe"));
    }

    #[test]
    fn paths_that_name_nothing_find_nothing() {
        for path in ["", "/nothing.js", "/../Cargo.toml", "/assets/", "//"] {
            assert_eq!(asset(path), None, "{path}");
        }
        assert_eq!(asset("/index.html"), asset("/"));
    }

    #[test]
    fn the_page_with_plots_comes_compressed() {
        let compressed = PAGE.1.iter().filter(|asset| asset.gzip.is_some()).count();
        assert_eq!(compressed, if is_built() { PAGE.1.len() } else { 0 });
    }
}
