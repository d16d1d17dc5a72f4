//! Rules for the source itself, read from its files: who may depend on what, one meaning per type name, folders and
//! comments that a reader can take in.
#![allow(clippy::unwrap_used)]

mod dependencies;
mod files;
mod layers;
mod names;
mod source;
