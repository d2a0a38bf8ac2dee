//! The front end's command line.

use std::env;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|word| word == "--version") {
        println!("vllm-rs 0.0.0");
    } else if arguments.iter().any(|word| word == "--help") {
        println!("Usage: vllm-rs serve MODEL [OPTIONS] [-- ENGINE OPTIONS]");
        for flag in vllm_server::FLAGS {
            println!("      {flag}");
        }
    } else {
        let flags = vllm_server::parse(&arguments);
        println!("{} flags", flags.len());
    }
}
