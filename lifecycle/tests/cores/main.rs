//! The pure cores of the node lifecycle. Tests are named by the rule they hold to (NH, TC, NE, LB, Q, Z), or by what
//! is better than upstream on purpose.

mod condition_taint;
mod eviction;
mod fixture;
mod health;
mod policy;
mod zone;
