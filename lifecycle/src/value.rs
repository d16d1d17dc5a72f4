//! Plain values: text, time, quantities, names, metadata. They know nothing of the objects made of them.

pub mod author;
pub mod cidr;
pub(crate) mod decimal;
pub mod fingerprint;
pub mod invalid;
pub mod level;
pub mod meta;
pub mod name;
pub mod quantity;
pub(crate) mod replica_id;
pub(crate) mod setting;
pub mod text;
pub mod time;
pub mod violation;
