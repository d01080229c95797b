//! Results for people and other tools: text, JSON, HTML, exports. Nothing is measured or computed
//! here; an analysis hands over plain values.

#![forbid(unsafe_code)]

#[cfg(test)]
mod analysis_fixture;
#[cfg(test)]
mod causal_fixture;
pub mod cfg;
pub mod error;
pub mod exports;
pub mod html;
pub mod json;
pub mod text;
