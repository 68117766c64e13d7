//! `photon admin`: questions to a running registry.
//!
//! Not here: anything that changes it.

mod table;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use photon_client::{ClientError, NodeStatus, Timings};
use photon_format::config::Config;
use serde::Serialize;

use crate::exit::{self, Exit};

/// Options of `photon admin`.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum AdminCommand {
    /// Where each node of the registry stands, as it says itself.
    Status(StatusArgs),
}

/// Options of `photon admin status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    /// The config file that names the nodes.
    #[arg(long, value_name = "FILE", required_unless_present = "endpoints", conflicts_with = "endpoints")]
    config: Option<PathBuf>,
    /// The nodes' client addresses, `host:port,host:port`.
    #[arg(long, value_delimiter = ',', value_name = "ADDRESSES")]
    endpoints: Vec<String>,
    /// Print one JSON object to standard output.
    #[arg(long)]
    json: bool,
}

/// What one endpoint said, or why it said nothing.
struct Answer {
    endpoint: String,
    status: Result<NodeStatus, ClientError>,
}

/// Runs `photon admin`.
///
/// # Errors
/// A config file that can not be read, or an endpoint that is none.
pub async fn run(args: AdminArgs) -> anyhow::Result<Exit> {
    match args.command {
        AdminCommand::Status(args) => run_status(args).await,
    }
}

async fn run_status(args: StatusArgs) -> anyhow::Result<Exit> {
    let endpoints = match &args.config {
        Some(file) => Config::load(file)?.registry_endpoints()?,
        None => args.endpoints,
    };
    for endpoint in &endpoints {
        photon_client::uri(endpoint).map_err(|error| exit::error(Exit::Usage, error))?;
    }
    let answers = photon_client::statuses(&endpoints, &Timings::default()).await;
    let answers: Vec<_> = answers.into_iter().map(|(endpoint, status)| Answer { endpoint, status }).collect();
    if args.json {
        println!("{}", serde_json::to_string(&Json::new(&answers))?);
    } else {
        println!("{}", table::of(&answers));
    }
    let (exit, message) = judge(&answers);
    if let Some(message) = message {
        eprintln!("error: {message}");
    }
    Ok(exit)
}

/// The node that leads: of several that say so, the one with the highest ballot.
fn leader(answers: &[Answer]) -> Option<&NodeStatus> {
    let answered = answers.iter().filter_map(|answer| answer.status.as_ref().ok());
    answered.filter(|status| status.role == "leader").max_by_key(|status| status.ballot)
}

fn judge(answers: &[Answer]) -> (Exit, Option<String>) {
    let answered: Vec<_> = answers.iter().filter_map(|answer| answer.status.as_ref().ok()).collect();
    if answered.is_empty() {
        return (Exit::Unreachable, Some("no node answered: is the registry running at these addresses?".into()));
    }
    let mut clusters: Vec<_> = answered.iter().filter_map(|status| status.cluster_id).collect();
    clusters.sort();
    clusters.dedup();
    if 1 < clusters.len() {
        let names: Vec<_> = clusters.iter().map(ToString::to_string).collect();
        return (Exit::Failure, Some(format!("the nodes belong to different clusters: {}", names.join(", "))));
    }
    match leader(answers) {
        Some(_) => (Exit::Ok, None),
        None => {
            let message = "no node leads: a majority of the nodes must run and reach each other";
            (Exit::Failure, Some(message.into()))
        }
    }
}

/// The JSON form.
#[derive(Serialize)]
struct Json {
    leader: Option<u32>,
    cluster_id: Option<String>,
    nodes: Vec<NodeJson>,
}

#[derive(Serialize)]
struct NodeJson {
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<StatusJson>,
}

#[derive(Serialize)]
struct StatusJson {
    node: u32,
    cluster_id: Option<String>,
    incarnation: Option<String>,
    boot: u64,
    role: String,
    leader: Option<u32>,
    ballot_round: u64,
    ballot_node: u32,
    commit_end: u64,
    applied_end: u64,
    accepted_end: u64,
    durable_end: u64,
    trimmed_end: u64,
    boundary: u64,
    journal_bytes: u64,
    batches_total: u64,
    commands_total: u64,
    fsyncs_total: u64,
    key_rules: String,
    version: String,
    members: Vec<MemberJson>,
}

#[derive(Serialize)]
struct MemberJson {
    node: u32,
    peer_address: String,
    client_address: String,
    connected: bool,
}

impl Json {
    fn new(answers: &[Answer]) -> Json {
        let leader = leader(answers);
        let cluster_id = answers.iter().find_map(|answer| answer.status.as_ref().ok()?.cluster_id);
        Json {
            leader: leader.map(|status| status.node.0),
            cluster_id: cluster_id.map(|id| id.to_string()),
            nodes: answers.iter().map(NodeJson::new).collect(),
        }
    }
}

impl NodeJson {
    fn new(answer: &Answer) -> NodeJson {
        let (status, error) = match &answer.status {
            Ok(status) => (Some(StatusJson::new(status)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        NodeJson { endpoint: answer.endpoint.clone(), error, status }
    }
}

impl StatusJson {
    fn new(status: &NodeStatus) -> StatusJson {
        let members = status.members.iter().map(|member| MemberJson {
            node: member.node.0,
            peer_address: member.peer_address.clone(),
            client_address: member.client_address.clone(),
            connected: member.connected,
        });
        StatusJson {
            node: status.node.0,
            cluster_id: status.cluster_id.map(|id| id.to_string()),
            incarnation: status.incarnation.map(|incarnation| incarnation.to_string()),
            boot: status.boot,
            role: status.role.clone(),
            leader: status.leader.map(|leader| leader.0),
            ballot_round: status.ballot.0,
            ballot_node: status.ballot.1.0,
            commit_end: status.commit_end.0,
            applied_end: status.applied_end.0,
            accepted_end: status.accepted_end.0,
            durable_end: status.durable_end.0,
            trimmed_end: status.trimmed_end.0,
            boundary: status.boundary,
            journal_bytes: status.journal_bytes,
            batches_total: status.batches_total,
            commands_total: status.commands_total,
            fsyncs_total: status.fsyncs_total,
            key_rules: status.key_rules.clone(),
            version: status.version.clone(),
            members: members.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use photon_types::{ClusterId, NodeId, Slot};

    use super::*;

    pub(super) fn status(node: u32, role: &str, cluster: u8) -> NodeStatus {
        NodeStatus {
            cluster_id: Some(ClusterId([cluster; 16])),
            node: NodeId(node),
            incarnation: None,
            boot: 1,
            role: role.into(),
            leader: Some(NodeId(1)),
            ballot: (4, NodeId(1)),
            commit_end: Slot(90),
            applied_end: Slot(89),
            accepted_end: Slot(91),
            trimmed_end: Slot(0),
            durable_end: Slot(91),
            boundary: 0,
            key_rules: String::new(),
            journal_bytes: 4096,
            members: Vec::new(),
            version: "0.1.0".into(),
            batches_total: 90,
            commands_total: 9000,
            fsyncs_total: 30,
        }
    }

    pub(super) fn answers(statuses: Vec<Option<NodeStatus>>) -> Vec<Answer> {
        let answer = |(i, status): (usize, Option<NodeStatus>)| {
            let endpoint = format!("host:{i}");
            let refused =
                ClientError::NoAnswer { endpoint: endpoint.as_str().into(), cause: "connection refused".into() };
            Answer { endpoint, status: status.ok_or(refused) }
        };
        statuses.into_iter().enumerate().map(answer).collect()
    }

    #[track_caller]
    fn check(statuses: Vec<Option<NodeStatus>>, want: Exit) {
        assert_eq!(judge(&answers(statuses)).0, want);
    }

    #[test]
    fn the_nodes_are_named_in_one_way() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            _args: AdminArgs,
        }
        let is_read = |line: &str| <Line as clap::Parser>::try_parse_from(line.split(' ')).is_ok();
        assert!(is_read("photon status --config photon.toml --json"));
        assert!(is_read("photon status --endpoints a:1,b:1 --json"));
        assert!(!is_read("photon status --json"));
        assert!(!is_read("photon status --config photon.toml --endpoints a:1"));
    }

    #[test]
    fn the_exit_code_says_who_answered_and_who_leads() {
        check(vec![None, None, None], Exit::Unreachable);
        check(vec![None, Some(status(2, "follower", 7)), None], Exit::Failure);
        check(vec![None, Some(status(2, "leader", 7)), None], Exit::Ok);
        check(vec![Some(status(1, "leader", 7)), Some(status(2, "leader", 8))], Exit::Failure);
    }

    #[test]
    fn the_json_form_has_a_reason_or_a_status_for_each_endpoint() {
        let json = serde_json::to_value(Json::new(&answers(vec![None, Some(status(2, "leader", 7))]))).unwrap();
        assert_eq!(json["leader"], 2);
        assert!(json["nodes"][0]["error"].as_str().unwrap().contains("connection refused"));
        assert_eq!(json["nodes"][1]["status"]["commit_end"], 90);
    }
}
