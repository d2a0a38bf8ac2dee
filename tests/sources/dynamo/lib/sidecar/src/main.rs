//! The sidecar's command line.

use std::env;

const FLAGS: [&str; 6] = [
    "--vllm-endpoint",
    "--admin-endpoint",
    "--model-path",
    "--namespace",
    "--rl-discovery-model-name",
    "--vllm-rl-world-size",
];

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--version") => println!("dynamo-vllm-sidecar {}", env!("CARGO_PKG_VERSION")),
        Some("--help") => FLAGS.iter().for_each(|flag| println!("      {flag} <VALUE>")),
        _ => println!("{} {}", dynamo_runtime::source(), dynamo_runtime::world_size(&1_u32)),
    }
}
