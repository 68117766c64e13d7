//! Chance, from the seed alone.
//!
//! Invariant: integers only, so that a seed means the same on every machine. Each purpose has dice
//! of its own: a change of what the network draws does not change what the disks do.

use std::time::Duration;

use photon_types::Prng;

/// How likely something is, in a million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chance(pub u64);

impl Chance {
    pub const NEVER: Chance = Chance(0);

    pub fn percent(percent: u64) -> Chance {
        Chance(percent * 10_000)
    }
}

/// A range of durations, the end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub min: Duration,
    pub end: Duration,
}

/// What the dice are for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Parameters = 1,
    Network = 2,
    Disks = 3,
    Machines = 4,
    Clients = 5,
    Trouble = 6,
    Replicas = 7,
}

#[derive(Clone, Debug)]
pub(crate) struct Dice(Prng);

impl Dice {
    pub fn new(seed: u64, purpose: Purpose) -> Dice {
        // Two rounds: neighboring seeds must not share the numbers of neighboring purposes.
        let mixed = Prng::new(seed).next_u64() ^ Prng::new(purpose as u64).next_u64();
        Dice(Prng::new(Prng::new(mixed).next_u64()))
    }

    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    pub fn index(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("a usize fits 64 bits");
        usize::try_from(self.below(end)).expect("below a usize")
    }

    /// A number in `min..=max`.
    pub fn range(&mut self, min: u64, max: u64) -> u64 {
        min + self.below(max - min + 1)
    }

    /// A number in `min..=max`, each doubling as likely as the others: small rates and large ones
    /// both come, where an even draw would hardly ever give a small one.
    pub fn doubling(&mut self, min: u64, max: u64) -> u64 {
        assert!(0 < min && min <= max, "no doublings from {min} to {max}");
        let doublings = u64::from((max / min).ilog2());
        let low = min << self.below(doublings + 1);
        self.range(low, max.min(low * 2 - 1).max(low))
    }

    pub fn chance(&mut self, chance: Chance) -> bool {
        chance != Chance::NEVER && self.below(1_000_000) < chance.0
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn span(&mut self, span: Span) -> Duration {
        self.0.duration(span.min, span.end)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doublings_are_drawn_alike() {
        let mut dice = Dice::new(1, Purpose::Parameters);
        let mut drawn = [0; 4];
        for _ in 0..4_000 {
            match dice.doubling(10, 159) {
                10..20 => drawn[0] += 1,
                20..40 => drawn[1] += 1,
                40..80 => drawn[2] += 1,
                80..160 => drawn[3] += 1,
                other => panic!("{other} is out of range"),
            }
        }
        assert!(drawn.iter().all(|count| (850..1_150).contains(count)), "{drawn:?}");
    }

    #[test]
    fn chances_are_kept() {
        let mut dice = Dice::new(2, Purpose::Network);
        let hits = (0..10_000).filter(|_| dice.chance(Chance::percent(5))).count();
        assert!((400..600).contains(&hits), "{hits}");
        assert!((0..10_000).all(|_| !dice.chance(Chance::NEVER)));
        assert!((0..100).all(|_| dice.chance(Chance::percent(100))));
    }

    /// A seed means the same on every machine: it stands in reports.
    #[test]
    fn numbers_are_golden() {
        let mut dice = Dice::new(7, Purpose::Network);
        assert_eq!(
            [dice.number(), dice.below(1_000), dice.doubling(3, 5_000)],
            [15_466_784_321_780_004_652, 828, 3_231]
        );
    }

    #[test]
    fn purposes_and_seeds_differ() {
        let first = |seed, purpose| Dice::new(seed, purpose).number();
        assert_ne!(first(1, Purpose::Network), first(1, Purpose::Disks));
        assert_ne!(first(1, Purpose::Network), first(2, Purpose::Network));
        assert_ne!(first(1, Purpose::Disks), first(2, Purpose::Network));
        assert_eq!(first(1, Purpose::Disks), first(1, Purpose::Disks));
    }
}
