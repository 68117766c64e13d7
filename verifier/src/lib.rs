//! The offline verifier: scan, fence, repair, ledger.
