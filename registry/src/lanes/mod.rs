//! The lanes: what the core asks for, done. Each reports to the driver's inbox, or to nobody.

pub(crate) mod apply;
pub(crate) mod journal;
pub(crate) mod peers;
pub(crate) mod queue;
pub(crate) mod reads;
