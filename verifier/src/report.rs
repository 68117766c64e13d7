//! What a run says: ledgers, findings, what was repaired; as one line of JSON, as aligned text, and
//! as an exit code.
//!
//! Invariant: nothing is only in the text or only in the JSON, except the evidence of findings:
//! JSON has their counts, the text has the first of each kind.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use photon_check::{DatacenterLedger, Findings, Imbalance, Kind, Ledger, Place, Waiting};
use photon_types::Incarnation;
use serde_json::{Map, Value, json};

/// How many findings of one kind are kept with their evidence.
pub const EVIDENCE_KEPT_MAX: usize = 100;

/// How many findings of one kind the text shows.
const FINDINGS_SHOWN_MAX: usize = 10;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Every distinct key, by its state.
    pub ledger: Ledger,
    /// Every configured datacenter.
    pub datacenters: Vec<DatacenterReport>,
    /// What the judgement found.
    pub findings: Findings,
    /// Lines whose bytes are not what the input says.
    pub wrong_content: Evidence,
    /// Files and directories that can not be believed.
    pub damage: Evidence,
    /// What is worth saying and is no difference.
    pub notes: Evidence,
    /// Keys that wait for an incarnation.
    pub waiting: BTreeMap<Incarnation, Waiting>,
    /// What this run changed.
    pub repaired: Repaired,
    /// The names of sources, by the number in a [`Place`].
    pub sources: Vec<String>,
}

/// One datacenter, by its dispatcher's own count.
#[derive(Clone, Debug)]
pub struct DatacenterReport {
    /// Its name.
    pub name: String,
    /// Why it could not be read.
    pub unreachable: Option<String>,
    /// Its ledger; none if it is not reachable or has no cursor yet.
    pub ledger: Option<DatacenterLedger>,
    /// Its dispatcher runs: counts and retry store were read at different moments, so that a ledger
    /// that does not add up says nothing.
    pub is_running: bool,
}

/// Findings with evidence as text: counted all, the first kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub kept: Vec<String>,
}

/// What a run changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Incarnations that this run fenced.
    pub fenced: u64,
    /// Claims deleted from the registry.
    pub deleted: u64,
    /// Clicks that are durable in a dispatcher's retry store again.
    pub reinjected: u64,
    /// Repairs that did not come to an end: the next run goes on.
    pub unfinished: Evidence,
}

impl Evidence {
    /// Counts one more, and keeps it while there is room.
    pub fn add(&mut self, text: String) {
        self.count += 1;
        if self.kept.len() < EVIDENCE_KEPT_MAX {
            self.kept.push(text);
        }
    }

    /// Appends another.
    pub fn append(&mut self, other: Evidence) {
        self.count += other.count;
        let room = EVIDENCE_KEPT_MAX.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(room));
    }
}

impl Repaired {
    /// Whether anything was changed: run again until nothing is.
    #[must_use]
    pub fn is_change(&self) -> bool {
        let Repaired { fenced, deleted, reinjected, unfinished: _ } = self;
        0 < *fenced || 0 < *deleted || 0 < *reinjected
    }
}

impl Report {
    /// 0 nothing is wrong, 3 differences, 4 something needed could not be reached, 5 evidence is
    /// damaged. Damage counts more than differences, and those more than what is out of reach. A
    /// click that is held while a datacenter is out of reach is out of reach too.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let is_unreachable = self.datacenters.iter().any(|datacenter| datacenter.unreachable.is_some());
        if 0 < self.damage.count {
            5
        } else if self.is_different() || (0 < self.ledger.held && !is_unreachable) {
            3
        } else if is_unreachable || 0 < self.repaired.unfinished.count {
            4
        } else {
            0
        }
    }

    /// Whether output and input differ, held clicks aside, or a ledger does not add up.
    fn is_different(&self) -> bool {
        let Ledger {
            keys: _,
            joined: _,
            filtered: _,
            unjoinable: _,
            expired: _,
            dead_lettered: _,
            pending: _,
            held: _,
            lost,
            duplicates,
            unkeyed: _,
        } = self.ledger;
        let counts = [lost, duplicates, self.unrepaired_findings(), self.wrong_content.count];
        counts.into_iter().any(|count| 0 < count) || !self.imbalances().is_empty()
    }

    /// Findings beside those that the ledger counts, after what a repair of this run took care of.
    fn unrepaired_findings(&self) -> u64 {
        let counted = [Kind::Lost, Kind::LostQueryFound, Kind::Held];
        self.findings.total() - counted.into_iter().map(|kind| self.findings.count(kind)).sum::<u64>()
    }

    /// The ledgers that do not add up.
    fn imbalances(&self) -> Vec<(&str, Imbalance)> {
        let datacenters = self.datacenters.iter().filter_map(|datacenter| {
            let imbalance = datacenter.ledger?.check().err()?;
            (!datacenter.is_running).then_some((datacenter.name.as_str(), imbalance))
        });
        self.ledger
            .check()
            .err()
            .map(|imbalance| ("all datacenters", imbalance))
            .into_iter()
            .chain(datacenters)
            .collect()
    }

    /// One line of JSON: the ledger's columns first.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::from("{");
        for (name, count) in self.ledger.columns() {
            write!(out, "\"{name}\":{count},").expect("a string takes everything");
        }
        let rest = [
            ("datacenters", Value::Object(self.datacenters.iter().map(datacenter_json).collect())),
            ("findings", self.findings_json()),
            ("repaired", repaired_json(&self.repaired)),
            ("waiting", self.waiting_json()),
            ("exit_code", json!(self.exit_code())),
        ];
        let rest: Vec<String> = rest.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        out.push_str(&rest.join(","));
        out.push('}');
        out
    }

    fn findings_json(&self) -> Value {
        let mut counts = Map::new();
        for finding in self.findings.kept() {
            let kind = finding.kind();
            counts.insert(kind.name().to_owned(), json!(self.findings.count(kind)));
        }
        for (name, count) in [
            ("wrong_content", self.wrong_content.count),
            ("damage", self.damage.count),
            ("ledgers_that_do_not_add_up", self.imbalances().len() as u64),
        ] {
            if 0 < count {
                counts.insert(name.to_owned(), json!(count));
            }
        }
        Value::Object(counts)
    }

    fn waiting_json(&self) -> Value {
        let one = |(incarnation, waiting): (&Incarnation, &Waiting)| {
            let Waiting { in_flight, not_fenced, held } = *waiting;
            (incarnation.to_string(), json!({ "in_flight": in_flight, "not_fenced": not_fenced, "held": held }))
        };
        Value::Object(self.waiting.iter().map(one).collect())
    }

    fn place(&self, place: Place) -> String {
        let name = usize::try_from(place.source).ok().and_then(|source| self.sources.get(source));
        format!("{}:{}", name.map_or("?", String::as_str), place.offset)
    }
}

fn datacenter_json(datacenter: &DatacenterReport) -> (String, Value) {
    let DatacenterReport { name, unreachable, ledger, is_running: _ } = datacenter;
    let mut value: Map<String, Value> = ledger
        .iter()
        .flat_map(DatacenterLedger::columns)
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect();
    if let Some(why) = unreachable {
        value.insert("unreachable".to_owned(), json!(why));
    }
    (name.clone(), Value::Object(value))
}

fn repaired_json(repaired: &Repaired) -> Value {
    let Repaired { fenced, deleted, reinjected, unfinished } = repaired;
    json!({ "fenced": fenced, "deleted": deleted, "reinjected": reinjected, "unfinished": unfinished.count })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ledger of all datacenters, by key\n")?;
        write_columns(f, &self.ledger.columns())?;
        for DatacenterReport { name, unreachable, ledger, is_running: _ } in &self.datacenters {
            writeln!(f, "ledger of datacenter {name}, by record")?;
            match (ledger, unreachable) {
                (Some(ledger), _) => write_columns(f, &ledger.columns())?,
                (None, Some(_)) => f.write_str("  not reachable\n")?,
                (None, None) => f.write_str("  nothing read yet\n")?,
            }
            if let Some(why) = unreachable {
                writeln!(f, "  {why}")?;
            }
        }
        for (whose, imbalance) in self.imbalances() {
            writeln!(f, "the ledger of {whose} does not add up: {imbalance}")?;
        }
        self.write_waiting(f)?;
        self.write_findings(f)?;
        let Repaired { fenced, deleted, reinjected, unfinished } = &self.repaired;
        if self.repaired.is_change() {
            writeln!(
                f,
                "repaired: {fenced} incarnations fenced, {deleted} claims deleted, {reinjected} clicks re-injected"
            )?;
        }
        write_evidence(f, "repairs did not come to an end, the next run goes on", unfinished)?;
        write_evidence(f, "notes", &self.notes)
    }
}

impl Report {
    fn write_waiting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (incarnation, waiting) in &self.waiting {
            let Waiting { in_flight, not_fenced, held } = *waiting;
            if 0 < in_flight {
                writeln!(
                    f,
                    "incarnation {incarnation} lives: {in_flight} clicks wait for it (if it does not: verify --repair --dead {incarnation})"
                )?;
            }
            if 0 < not_fenced {
                writeln!(f, "incarnation {incarnation} is dead: {not_fenced} clicks wait for verify --repair")?;
            }
            if 0 < held {
                writeln!(
                    f,
                    "incarnation {incarnation} has no output that can be believed: {held} clicks are held; bring its directory back"
                )?;
            }
        }
        Ok(())
    }

    fn write_findings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_kind: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for finding in self.findings.kept() {
            by_kind.entry(finding.kind()).or_default().push(finding);
        }
        for (kind, kept) in by_kind {
            writeln!(f, "{}: {}", kind.name(), self.findings.count(kind))?;
            for finding in kept.iter().take(FINDINGS_SHOWN_MAX) {
                let place = finding.place().map(|place| format!("{}: ", self.place(place))).unwrap_or_default();
                let query = finding.query().map(|query| format!(" at {}", self.place(query))).unwrap_or_default();
                writeln!(f, "  {place}{finding}{query}")?;
            }
        }
        write_evidence(f, "lines that are not what the input says", &self.wrong_content)?;
        write_evidence(f, "damage", &self.damage)
    }
}

fn write_columns(f: &mut fmt::Formatter<'_>, columns: &[(&str, u64)]) -> fmt::Result {
    let width = columns.iter().map(|(_, count)| count.to_string().len()).max().unwrap_or(1);
    columns.iter().try_for_each(|(name, count)| writeln!(f, "  {:<14}{count:>width$}", name.replace('_', "-")))
}

fn write_evidence(f: &mut fmt::Formatter<'_>, title: &str, evidence: &Evidence) -> fmt::Result {
    if evidence.count == 0 {
        return Ok(());
    }
    writeln!(f, "{title}: {}", evidence.count)?;
    evidence.kept.iter().take(FINDINGS_SHOWN_MAX).try_for_each(|text| writeln!(f, "  {text}"))
}

#[cfg(test)]
mod tests {
    use photon_check::{Finding, Held, Loss, State};
    use photon_types::EventKey;

    use super::*;

    fn report() -> Report {
        let mut report = Report { sources: vec!["clicks/a.log".into()], ..Report::default() };
        (0..3).for_each(|_| report.ledger.count(State::Joined));
        report.ledger.unkeyed = 2;
        report.datacenters.push(DatacenterReport {
            name: "east".into(),
            unreachable: None,
            is_running: false,
            ledger: Some(DatacenterLedger { read: 5, joined: 3, dead_lettered: 2, ..DatacenterLedger::default() }),
        });
        report
    }

    fn lose_one(report: &mut Report) {
        let key = EventKey::new(9, b"lost").unwrap();
        let place = Place { source: 0, offset: 77 };
        report.ledger.count(State::Lost(Loss::Unclaimed));
        report.findings.add(Finding::Lost { key, place, loss: Loss::Unclaimed }, 10);
    }

    #[test]
    fn one_line_of_json_begins_with_the_ledger() {
        let json = report().to_json();
        let ledger = "{\"keys\":3,\"joined\":3,\"filtered\":0,\"unjoinable\":0,\"expired\":0,\"dead_lettered\":0,\
                      \"pending\":0,\"held\":0,\"lost\":0,\"duplicates\":0,\"unkeyed\":2,";
        assert!(json.starts_with(ledger), "{json}");
        assert!(!json.contains('\n'));
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["datacenters"]["east"]["read"], 5);
        assert_eq!(value["exit_code"], 0);
    }

    #[test]
    fn the_text_names_the_place_of_what_was_lost() {
        let mut report = report();
        lose_one(&mut report);
        let text = report.to_string();
        assert!(
            text.contains("  dead-lettered 0\n") && text.contains("clicks/a.log:77: click 9:lost is lost"),
            "{text}"
        );
    }

    #[test]
    fn what_a_repair_took_care_of_is_no_difference_any_more() {
        let mut report = report();
        lose_one(&mut report);
        assert_eq!(report.exit_code(), 3);
        report.ledger.lost_to_pending();
        report.repaired.reinjected += 1;
        assert_eq!(report.exit_code(), 0);
        assert!(report.repaired.is_change());
    }

    #[test]
    fn damage_counts_more_than_differences_and_those_more_than_what_is_out_of_reach() {
        let mut report = report();
        report.ledger.count(State::Held(Held::Forgotten));
        assert_eq!(report.exit_code(), 3);
        report.datacenters[0].unreachable = Some("gone".into());
        assert_eq!(report.exit_code(), 4);
        report.ledger.duplicates = 1;
        assert_eq!(report.exit_code(), 3);
        report.damage.add("a gap".into());
        assert_eq!(report.exit_code(), 5);
    }

    #[test]
    fn a_ledger_that_does_not_add_up_is_a_difference() {
        let mut report = report();
        report.datacenters[0].ledger.as_mut().unwrap().claimed = 1;
        report.datacenters[0].is_running = true;
        assert_eq!(report.exit_code(), 0);
        report.datacenters[0].is_running = false;
        assert_eq!(report.exit_code(), 3);
        assert!(report.to_string().contains("the ledger of east does not add up: 5 taken in, 6 accounted for"));
    }
}
