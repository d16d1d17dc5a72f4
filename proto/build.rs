//! Compiles the protocol files with protox, so that no protoc is needed on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = [
        "muster/v1/operator.proto",
        "muster/v1/peer.proto",
        "muster/v1/agent.proto",
        "muster/v1/pulse.proto",
        "muster/v1/enrolment.proto",
    ];
    for file in files {
        println!("cargo:rerun-if-changed={file}");
    }
    let descriptors = protox::compile(files, ["."])?;
    let codec = "crate::codec::LeanCodec";
    tonic_prost_build::configure().bytes(".muster.v1").codec_path(codec).compile_fds(descriptors)?;
    Ok(())
}
