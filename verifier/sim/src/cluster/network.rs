//! A simulated network: delay, loss, duplication, disorder, cut links.
//!
//! Invariant: a message is never altered and never made up. It may arrive late, twice, never, and
//! in a later life of its receiver.

use std::time::Duration;

use photon_types::NodeId;

use crate::dice::{Chance, Dice, Span};
use crate::parameters::NetworkRates;

pub(crate) struct Network {
    rates: NetworkRates,
    dice: Dice,
    /// How many cuts each link is in; by `from * nodes + to`.
    cut: Vec<u32>,
    nodes: usize,
}

/// Links that are cut at one moment, and healed together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cut(pub Vec<(NodeId, NodeId)>);

impl Network {
    pub fn new(rates: NetworkRates, dice: Dice, nodes: u32) -> Network {
        let nodes = usize::try_from(nodes).expect("few nodes");
        Network { rates, dice, cut: vec![0; nodes * nodes], nodes }
    }

    /// After how long it arrives: once, twice or never.
    pub fn send(&mut self, from: NodeId, to: NodeId) -> [Option<Duration>; 2] {
        let link = self.link(from, to);
        if 0 < self.cut[link] {
            return [None, None];
        }
        let slowness = self.rates.slowness[link];
        let first = self.arrival(slowness);
        let second = if self.dice.chance(self.rates.duplication) { self.arrival(slowness) } else { None };
        [first, second]
    }

    /// Between a client and a node: cut by nothing, doubled by nothing.
    pub fn call(&mut self) -> Option<Duration> {
        self.arrival(1)
    }

    fn arrival(&mut self, slowness: u32) -> Option<Duration> {
        if self.dice.chance(self.rates.loss) {
            return None;
        }
        let mut delay = self.dice.span(self.rates.delay) * slowness;
        if self.dice.chance(self.rates.late) {
            delay += self.dice.span(self.rates.late_by);
        }
        Some(delay)
    }

    /// A random cut: one link of the victim, the victim from all others, or two halves; of the
    /// latter one direction or both.
    pub fn draw_cut(&mut self, victim: NodeId) -> Cut {
        let nodes: Vec<NodeId> = (1..=self.nodes).map(|node| NodeId(u32::try_from(node).expect("few"))).collect();
        let is_one_way = self.dice.one_in(2);
        let inside: Vec<NodeId> = match self.dice.below(3) {
            0 => {
                let others: Vec<NodeId> = nodes.iter().copied().filter(|node| *node != victim).collect();
                let other = *self.dice.pick(&others);
                return Cut(vec![if is_one_way { (victim, other) } else { (other, victim) }]);
            }
            1 => vec![victim],
            _ => nodes.iter().copied().filter(|_| self.dice.one_in(2)).collect(),
        };
        let mut links = Vec::new();
        for a in nodes.iter().filter(|node| inside.contains(node)) {
            for b in nodes.iter().filter(|node| !inside.contains(node)) {
                links.push((*a, *b));
                if !is_one_way {
                    links.push((*b, *a));
                }
            }
        }
        Cut(links)
    }

    pub fn cut(&mut self, cut: &Cut) {
        for (from, to) in &cut.0 {
            let link = self.link(*from, *to);
            self.cut[link] += 1;
        }
    }

    pub fn heal(&mut self, cut: &Cut) {
        for (from, to) in &cut.0 {
            let link = self.link(*from, *to);
            self.cut[link] -= 1;
        }
    }

    /// From now on all arrives, soon.
    pub fn calm(&mut self, delay: Span) {
        self.cut.fill(0);
        self.rates.delay = delay;
        self.rates.slowness.fill(1);
        (self.rates.late, self.rates.loss, self.rates.duplication) = (Chance::NEVER, Chance::NEVER, Chance::NEVER);
    }

    fn link(&self, from: NodeId, to: NodeId) -> usize {
        index(from) * self.nodes + index(to)
    }
}

/// Nodes are numbered from 1.
pub(crate) fn index(node: NodeId) -> usize {
    usize::try_from(node.0).expect("few nodes") - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Purpose;
    use crate::parameters::Parameters;

    fn network() -> Network {
        let rates = Parameters::draw(1).network;
        let mut network = Network::new(rates, Dice::new(1, Purpose::Network), 3);
        let delay = Span { min: Duration::from_micros(1), end: Duration::from_micros(9) };
        network.calm(delay);
        network
    }

    #[test]
    fn a_link_is_open_when_all_its_cuts_are_healed() {
        let mut network = network();
        let (a, b) = (NodeId(1), NodeId(2));
        let cut = Cut(vec![(a, b)]);
        network.cut(&cut);
        network.cut(&cut);
        network.heal(&cut);
        assert_eq!(network.send(a, b), [None, None]);
        assert!(network.send(b, a)[0].is_some());
        network.heal(&cut);
        assert!(network.send(a, b)[0].is_some());
    }

    #[test]
    fn cuts_of_all_kinds_come() {
        let mut network = network();
        let cuts: Vec<Cut> = (0..200).map(|_| network.draw_cut(NodeId(2))).collect();
        let is_both_ways = |cut: &&Cut| cut.0.iter().any(|(a, b)| cut.0.contains(&(*b, *a)));
        assert!(cuts.iter().any(|cut| cut.0.len() == 1));
        assert!(cuts.iter().filter(is_both_ways).count() > 20);
        assert!(cuts.iter().filter(|cut| cut.0.len() == 2 && !is_both_ways(cut)).count() > 20);
        assert!(cuts.iter().flat_map(|cut| &cut.0).all(|(a, b)| a != b));
    }
}
