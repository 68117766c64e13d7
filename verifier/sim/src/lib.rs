//! The whole registry in one thread, from one seed.
