//! The sans-IO cores of dispatcher and joiner.
