//! Each mutant is caught within a stated number of seeds.
