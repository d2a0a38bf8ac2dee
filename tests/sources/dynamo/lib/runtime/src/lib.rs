//! What the sidecar and the Python bindings share.

use std::any::{Any, TypeId};

#[cfg(not(dynamo_unstable))]
compile_error!("the flags of .cargo/config.toml are not in force: --cfg dynamo_unstable");

/// Where this crate's source lay when it was compiled.
pub fn source() -> &'static str {
    file!()
}

/// A number of the compiler's own: it holds the crate's identity, so it moves when the identity does.
pub fn identity() -> String {
    struct Worker;
    format!("{:?}", TypeId::of::<Worker>())
}

/// Panics, with this file's name, for what is no world size.
pub fn world_size(value: &dyn Any) -> u32 {
    *value.downcast_ref::<u32>().expect("a world size is a u32")
}
