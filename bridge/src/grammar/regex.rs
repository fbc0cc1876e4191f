//! Regular expressions as they come from outside, before llguidance sees them.

use llguidance::derivre::{RegexAst, RegexBuilder};

use super::reason;
use crate::ffi::Result;

/// llguidance rewrites expressions before it parses them, and takes some for other than they are.
pub fn check(source: &str) -> Result<&str> {
    if source.contains("<stop>") {
        return Err("groups of a regular expression cannot be named stop".into());
    }
    let parsed = RegexBuilder::new().mk(&RegexAst::Regex(source.to_owned()));
    match parsed {
        Ok(_) if source.is_empty() => Ok("(?:)"),
        Ok(_) => Ok(source),
        Err(e) => Err(format!("{}: regular expression {source:?}", reason(&e.to_string()))),
    }
}
