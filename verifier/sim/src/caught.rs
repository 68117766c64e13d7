//! The core's own assertions as findings: a panic inside a step is evidence, not the end.
//!
//! Invariant: outside of `guard` a panic does what it always did.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    // A panic hook has no other way to know whose panic it sees.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs it; a panic comes back as its message and place. The state that it left behind is not used
/// again: the run ends there.
pub(crate) fn guard<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    install_hook();
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    GUARDED.set(false);
    result.map_err(|payload| format!("{} at {}", message(payload.as_ref()), PLACE.with_borrow(Clone::clone)))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without a text")
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                return before(info);
            }
            let place = info.location().map_or_else(|| "an unknown place".into(), ToString::to_string);
            PLACE.set(place);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_evidence() {
        assert_eq!(guard(|| 7), Ok(7));
        let found = guard(|| panic!("sums of {}", 2)).unwrap_err();
        assert!(found.starts_with("sums of 2 at ") && found.contains("caught.rs:"), "{found}");
        assert_eq!(guard(|| 8), Ok(8));
    }
}
