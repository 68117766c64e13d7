//! The config file of the demo: three registry nodes and two datacenters on free loopback ports.

use std::fmt::Write;
use std::path::Path;

use crate::processes::free_addresses;

/// The registry nodes.
pub const NODES: [u32; 3] = [1, 2, 3];

/// The datacenters.
pub const DATACENTERS: [&str; 2] = ["east", "west"];

/// The roles of a datacenter, in the order in which they are started.
pub const ROLES: [&str; 3] = ["event-store", "joiner", "dispatcher"];

/// The text of the config file, and the addresses of the dispatchers' status pages.
pub fn text(dir: &Path, logs: &Path) -> anyhow::Result<(String, Vec<String>)> {
    let mut addresses = free_addresses(3 * NODES.len() + 2 * ROLES.len() * DATACENTERS.len())?.into_iter();
    let mut address = move || addresses.next().expect("as many as are used");
    let mut dispatchers = Vec::new();
    let path = |path: &Path| toml::Value::String(path.display().to_string());
    let mut text = format!("[cluster]\nname = \"demo\"\ndata-dir = {}\n", path(&dir.join("data")));
    for node in NODES {
        let (peer, client, http) = (address(), address(), address());
        write!(
            text,
            "\n[[registry.node]]\nid = {node}\npeer = \"{peer}\"\nclient = \"{client}\"\nhttp = \"{http}\"\n"
        )?;
    }
    text.push_str(&JOIN.replace("LOGS", &path(logs).to_string()));
    for datacenter in DATACENTERS {
        write!(text, "\n[[datacenter]]\nname = \"{datacenter}\"\n")?;
        for role in ROLES {
            let (serve, http) = (address(), address());
            write!(text, "{role} = \"{serve}\"\n{role}-http = \"{http}\"\n")?;
            if role == "dispatcher" {
                dispatchers.push(http);
            }
        }
    }
    Ok((text, dispatchers))
}

const JOIN: &str = r#"
[join]

[[join.input]]
name = "shop"
path = LOGS
framing = "es-bulk"

[[join.stream]]
name = "queries"
role = "primary"
input = "shop"
select = { "@index" = "ubi_queries" }
id = "query_id"

[[join.stream]]
name = "events"
role = "foreign"
input = "shop"
select = { "@index" = "ubi_events" }
id = "@id"
reference = "query_id"
time = { field = "timestamp", forms = ["rfc3339", "epoch-ms"] }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_is_one_that_photon_reads() {
        let (text, dispatchers) = text(Path::new("/a \"quoted\" place"), Path::new("logs")).unwrap();
        let config = photon_format::config::Config::parse(&text, Path::new("demo.toml")).unwrap();
        assert_eq!(config.registry.nodes.len(), NODES.len());
        let found = config.datacenters.iter().map(|it| it.dispatcher_http.as_ref().unwrap().to_string());
        assert_eq!(found.collect::<Vec<_>>(), dispatchers);
    }
}
