//! temporary
pub use ::whither_session::*;
#[derive(Clone, Default)]
pub struct StopFlag;
impl StopFlag {
    pub fn request(&self) {}
}
#[derive(Debug)]
pub struct SessionError;
impl SessionError {
    pub fn exit_code(&self) -> u8 {
        3
    }
}
impl std::fmt::Display for SessionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("pending")
    }
}
impl std::error::Error for SessionError {}
pub enum OnExisting {
    Replace,
    Refuse,
}
pub enum Control {
    Status,
    Flush,
    NewEpoch { label: String },
    Stop,
}
pub fn record(_: &RecordOptions, _: &StopFlag, _: &mut dyn FnMut(Progress)) -> Result<Outcome, SessionError> {
    Err(SessionError)
}
pub fn daemon(_: &DaemonOptions, _: &StopFlag, _: &mut dyn FnMut(Progress)) -> Result<(), SessionError> {
    Err(SessionError)
}
pub fn control(_: &std::path::Path, _: &Control) -> Result<String, SessionError> {
    Err(SessionError)
}
pub fn import(_: &std::path::Path, _: &std::path::Path, _: OnExisting) -> Result<Outcome, SessionError> {
    Err(SessionError)
}
