//! The answers of all nodes as a table.

use comfy_table::{CellAlignment, Table, presets};
use photon_client::NodeStatus;

use super::Answer;

const HEADER: [&str; 11] =
    ["node", "address", "role", "leader", "ballot", "commit", "applied", "durable", "journal", "peers", "cluster"];
/// The columns from `commit` to `peers` hold numbers.
const NUMBERS: std::ops::Range<usize> = 5..10;

/// One row for each node that answered; below it, one line for each that did not.
pub fn of(answers: &[Answer]) -> String {
    let mut text = String::new();
    let answered: Vec<_> = answers.iter().filter_map(|it| Some((it, it.status.as_ref().ok()?))).collect();
    if !answered.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(HEADER);
        for (answer, status) in answered {
            table.add_row(row(&answer.endpoint, status));
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if NUMBERS.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        text.push_str(&table.trim_fmt());
    }
    for answer in answers {
        if let Err(error) = &answer.status {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&error.to_string());
        }
    }
    text
}

fn row(endpoint: &str, status: &NodeStatus) -> [String; HEADER.len()] {
    let others = status.members.iter().filter(|member| member.node != status.node);
    let connected = others.clone().filter(|member| member.connected).count();
    let nobody = || "-".to_owned();
    [
        status.node.to_string(),
        endpoint.to_owned(),
        status.role.clone(),
        status.leader.map_or_else(nobody, |leader| leader.to_string()),
        format!("{}.{}", status.ballot.0, status.ballot.1),
        status.commit_end.to_string(),
        status.applied_end.to_string(),
        status.durable_end.to_string(),
        bytes(status.journal_bytes),
        format!("{connected}/{}", others.count()),
        status.cluster_id.map_or_else(nobody, |id| id.to_string()),
    ]
}

fn bytes(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    if bytes < MIB { format!("{} KiB", bytes.div_ceil(1024)) } else { format!("{} MiB", bytes / MIB) }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::{answers, status};
    use super::*;

    #[test]
    fn columns_are_aligned_and_silence_has_a_reason() {
        let answers = answers(vec![Some(status(1, "leader", 7)), None, Some(status(3, "follower", 7))]);
        expect![[r#"
            node  address  role      leader  ballot  commit  applied  durable  journal  peers  cluster
            1     host:0   leader    1       4.1         90       89       91    4 KiB    0/0  07070707070707070707070707070707
            3     host:2   follower  1       4.1         90       89       91    4 KiB    0/0  07070707070707070707070707070707
            host:1 did not answer: connection refused"#]].assert_eq(&of(&answers));
    }
}
