//! Does the output say what the input says: pure findings over clicks, outputs and registry.
