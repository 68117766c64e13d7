//! The stream join: reader, event store, dispatcher, joiner.
