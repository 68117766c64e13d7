//! The one config file of all roles: TOML with human durations and sizes.
//!
//! Invariant: a [`Config`] is whole and its parts agree: whoever holds one checks nothing again.
//! What must agree over datacenters is stated to the registry as key rules (`keyrules`).
//!
//! Relative paths are relative to the working directory of the process.
//!
//! Not here: flags and environment, which the command line lays over the file.

mod check;
mod load;
mod parts;
mod show;
mod toml_form;

use std::path::{Path, PathBuf};

use photon_types::NodeId;

use crate::error::{ConfigError, Place};

pub use parts::{
    Adapter, Address, Cluster, Datacenter, DuplicatePrimary, Filter, Framing, IdSource, Input, InputIndex, Join,
    Registry, RegistryNode, Retention, Role, Stream, StreamIndex, StreamKind,
};

/// What the config file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from, for messages.
    pub file: PathBuf,
    /// The system as a whole.
    pub cluster: Cluster,
    /// The IdRegistry.
    pub registry: Registry,
    /// What is joined, and how.
    pub join: Join,
    /// Where it is joined.
    pub datacenters: Vec<Datacenter>,
}

impl Config {
    /// Reads a config file.
    ///
    /// # Errors
    /// [`ConfigError`], which names file, line and key, and says what is allowed.
    pub fn load(file: &Path) -> Result<Config, ConfigError> {
        let text =
            std::fs::read_to_string(file).map_err(|source| ConfigError::Read { file: file.to_owned(), source })?;
        Config::parse(&text, file)
    }

    /// Reads the text of a config file; `file` is for messages only.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigError> {
        load::parse(text, file)
    }

    /// The config file that the project ships for logs in UBI form: an example that is complete.
    pub const EXAMPLE: &str = include_str!("../../../../deploy/examples/ubi.toml");

    /// This configuration with another path for its only input, in all datacenters: `--input`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] when there is more than one input.
    pub fn with_input(mut self, path: &Path) -> Result<Config, ConfigError> {
        let [input] = self.join.inputs.as_mut_slice() else {
            let names: Vec<_> = self.join.inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(ConfigError::Invalid {
                file: self.file,
                at: Place { line: None, key: "join.input".into() },
                message: format!(
                    "--input replaces the path of the only input, but there are {}: {}; set their paths in the file",
                    names.len(),
                    names.join(", ")
                ),
            });
        };
        input.path = path.to_owned();
        self.datacenters.iter_mut().for_each(|datacenter| datacenter.paths.clear());
        Ok(self)
    }

    /// What is in force, as `key = value` pairs in the order of the file: for the start block.
    #[must_use]
    pub fn effective(&self) -> Vec<(String, String)> {
        show::effective(self)
    }

    /// The node with this id.
    ///
    /// # Errors
    /// [`ConfigError::Absent`], which lists the ids there are.
    pub fn node(&self, id: NodeId) -> Result<&RegistryNode, ConfigError> {
        self.registry.nodes.iter().find(|node| node.id == id).ok_or_else(|| {
            let ids = self.registry.nodes.iter().map(|node| node.id.to_string());
            self.absent("registry.node", &id.to_string(), ids)
        })
    }

    /// The datacenter of this name.
    ///
    /// # Errors
    /// [`ConfigError::Absent`], which lists the names there are.
    pub fn datacenter(&self, name: &str) -> Result<&Datacenter, ConfigError> {
        self.datacenters
            .iter()
            .find(|datacenter| datacenter.name == name)
            .ok_or_else(|| self.absent("datacenter", name, self.datacenters.iter().map(|it| it.name.clone())))
    }

    /// An address that a process of its own needs, though `dev` does without.
    ///
    /// # Errors
    /// [`ConfigError::Absent`], which names the key to set.
    pub fn address<'a>(&self, key: &str, address: Option<&'a Address>) -> Result<&'a Address, ConfigError> {
        address.ok_or_else(|| ConfigError::Absent {
            file: self.file.clone(),
            message: format!("`{key}` is not set, and this role needs it: set it to \"host:port\""),
        })
    }

    /// The addresses on which the registry serves clients.
    ///
    /// # Errors
    /// [`ConfigError::Absent`] when a node has none.
    pub fn registry_endpoints(&self) -> Result<Vec<String>, ConfigError> {
        let endpoint = |node: &RegistryNode| {
            let key = format!("registry.node[id {}].client", node.id);
            self.address(&key, node.client.as_ref()).map(ToString::to_string)
        };
        self.registry.nodes.iter().map(endpoint).collect()
    }

    /// Where this input lies in this datacenter.
    #[must_use]
    pub fn input_path<'a>(&'a self, datacenter: &'a Datacenter, input: InputIndex) -> &'a Path {
        let input = &self.join.inputs[input.0];
        datacenter.paths.get(&input.name).unwrap_or(&input.path)
    }

    /// The data directory of a registry node.
    #[must_use]
    pub fn registry_dir(&self, node: NodeId) -> PathBuf {
        self.cluster.data_dir.join("registry").join(node.to_string())
    }

    /// The directory of a datacenter's pipeline.
    #[must_use]
    pub fn datacenter_dir(&self, datacenter: &str) -> PathBuf {
        self.cluster.data_dir.join(datacenter)
    }

    /// The output directory of a datacenter: `live/` and `sealed/` are in it.
    #[must_use]
    pub fn output_dir(&self, datacenter: &str) -> PathBuf {
        self.datacenter_dir(datacenter).join("output")
    }

    /// The directory of a datacenter's dispatcher: cursor, ends and retry store are in it.
    #[must_use]
    pub fn dispatcher_dir(&self, datacenter: &str) -> PathBuf {
        self.datacenter_dir(datacenter).join("dispatcher")
    }

    /// The one foreign stream.
    #[must_use]
    pub fn foreign(&self) -> (StreamIndex, &Stream) {
        let index = self.join.streams.iter().position(|stream| stream.role() == Role::Foreign);
        let index = index.expect("checked when loaded: exactly one foreign stream");
        (StreamIndex(index), &self.join.streams[index])
    }

    fn absent(&self, what: &str, wanted: &str, there: impl Iterator<Item = String>) -> ConfigError {
        let there = there.collect::<Vec<_>>().join(", ");
        ConfigError::Absent {
            file: self.file.clone(),
            message: format!("there is no [[{what}]] {wanted}; there are: {there}"),
        }
    }
}

#[cfg(test)]
mod tests;
