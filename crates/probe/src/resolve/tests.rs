//! Resolution over made-up modules.
