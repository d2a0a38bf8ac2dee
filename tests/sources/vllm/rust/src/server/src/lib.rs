//! The flags that the front end knows.

use std::any::Any;
use std::collections::HashMap;

pub const FLAGS: [&str; 8] = [
    "--served-model-name",
    "--host",
    "--port",
    "--grpc-port",
    "--enable-scale-out",
    "--enable-prompt-tokens-details",
    "--python",
    "--help",
];

/// Flags and their values. Panics, with this file's name, for a flag that is not known.
pub fn parse(arguments: &[String]) -> HashMap<String, Box<dyn Any>> {
    let mut found: HashMap<String, Box<dyn Any>> = HashMap::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        assert!(FLAGS.contains(&word.as_str()), "unknown flag {word}");
        match words.next().and_then(|value| value.parse::<u16>().ok()) {
            Some(number) => found.insert(word.clone(), Box::new(number)),
            None => found.insert(word.clone(), Box::new(String::new())),
        };
    }
    found
}
