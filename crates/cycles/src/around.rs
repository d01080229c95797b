//! What surrounds a function in its image is the store's to tell; whether graphs made with it are right is tested here,
//! beside the reader of exact counts.

pub(crate) use whither_store::around::Around;

#[cfg(test)]
mod executed;
