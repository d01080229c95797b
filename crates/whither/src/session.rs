//! temporary
pub use whither_session::*;
pub enum Control {
    Status,
    Flush,
    NewEpoch { label: String },
    Stop,
}
fn pending() -> SessionError {
    SessionError::NoSuchProcess(0)
}
pub fn daemon(_: &DaemonOptions, _: &StopFlag, _: &mut dyn FnMut(Progress)) -> Result<(), SessionError> {
    Err(pending())
}
pub fn control(_: &std::path::Path, _: &Control) -> Result<String, SessionError> {
    Err(pending())
}
pub fn import(_: &std::path::Path, _: &std::path::Path, _: OnExisting) -> Result<Outcome, SessionError> {
    Err(pending())
}
