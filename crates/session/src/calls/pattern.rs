//! What the user writes after `-f` and `-x`, as orders for the engine. Patterns are read here, before
//! anything is launched or attached, so that a slip costs nothing.

use crate::SessionError;
use whither_probe::select::{SelectError, parse};
use whither_probe::{Order, Select};

/// Functions to probe.
///
/// # Errors
/// [`SessionError::Pattern`] for what can never match.
pub fn including(text: &str) -> Result<Order, SessionError> {
    Ok(Order::Include(parse(text)?))
}

/// Functions to leave out of those.
///
/// # Errors
/// [`SessionError::Pattern`] for what can never match.
pub fn excluding(text: &str) -> Result<Order, SessionError> {
    match parse(text)? {
        Select::CalledFrom { .. } => Err(SelectError::WithoutCallers { text: text.into() }.into()),
        select => Ok(Order::Exclude(select)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_one_of_usage() {
        for text in ["", "#x", "a(b", "mod!"] {
            assert_eq!(including(text).unwrap_err().exit_code(), 2, "{text}");
        }
        assert!(matches!(excluding("a.*"), Ok(Order::Exclude(_))));
        assert_eq!(excluding("a@lib").unwrap_err().exit_code(), 2);
    }
}
