//! Compiles the wire contract with protox, so that no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["photon/registry/v1/registry.proto", "photon/peer/v1/peer.proto", "photon/pipeline/v1/pipeline.proto"];
    let files: Vec<&str> = files.into_iter().filter(|file| std::path::Path::new(file).exists()).collect();
    let files = [&files[..], &["photon/pipeline/v1/dispatcher.proto"]].concat();
    println!("cargo:rerun-if-changed=photon");
    let descriptors = protox::compile(files, ["."])?;
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
