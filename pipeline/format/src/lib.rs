//! Framing, key rules, configuration, and the files of the pipeline.
