//! What every crate that owns files shares: durable write, flock, framed append file.
