//! The IdRegistry server.
