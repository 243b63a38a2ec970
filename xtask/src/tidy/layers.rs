//! A crate uses only the crates below it, so that you can understand, test and simulate the engine without anything
//! that does I/O.

use super::Complaint;
use crate::tree::SourceFile;

/// Each crate with the crates of the workspace that it may use, from the lowest layer up.
///
/// This is a list and not an order: the core (up to the engine) never sees a device, a thread or a file, and a front
/// door never sees another front door.
const LAYERS: [(&str, &[&str]); 30] = [
    ("base", &[]),
    ("holder", &[]),
    ("measure", &["base"]),
    ("models", &["base", "measure"]),
    ("format", &["base"]),
    ("claim", &["base"]),
    ("peer", &["base"]),
    ("registry", &["base", "claim"]),
    ("ledger", &[]),
    ("device", &["base", "format"]),
    ("copies", &["base", "device", "peer"]),
    ("map", &["base", "format"]),
    ("policy", &["base"]),
    ("log", &["base", "format", "map"]),
    ("engine", &["base", "format", "map", "policy", "log"]),
    ("names", &["base", "format", "engine", "ledger"]),
    ("timed", &["base", "measure", "models", "format", "engine"]),
    ("check", &["base", "format", "map", "log", "engine"]),
    ("recording", &["base", "format"]),
    ("fuzz", &["base", "format", "map", "log", "engine", "check", "recording"]),
    ("trace", &["base", "policy", "recording"]),
    (
        "sim",
        &[
            "base", "format", "claim", "map", "models", "policy", "log", "engine", "ledger", "names", "trace",
            "measure", "timed", "peer",
        ],
    ),
    ("rules", &["base"]),
    ("door", &["base", "engine", "rules"]),
    ("shard", &["base", "format", "claim", "device", "map", "log", "engine", "door", "recording"]),
    ("modelled", &["base", "format", "models", "engine", "shard"]),
    ("mount", &["base", "format", "device", "engine", "ledger", "names", "rules", "door", "shard"]),
    (
        "control",
        &[
            "base",
            "format",
            "claim",
            "holder",
            "device",
            "engine",
            "ledger",
            "rules",
            "door",
            "shard",
            "mount",
            "recording",
            "peer",
            "copies",
            "registry",
        ],
    ),
    (
        "lab",
        &[
            "base", "format", "holder", "device", "map", "engine", "shard", "mount", "control", "measure", "models",
            "timed",
        ],
    ),
    (
        "cli",
        &[
            "base",
            "format",
            "check",
            "device",
            "engine",
            "shard",
            "rules",
            "mount",
            "control",
            "lab",
            "modelled",
            "holder",
            "policy",
            "recording",
            "trace",
            "peer",
        ],
    ),
];

/// Complains about dependencies that lead up or sideways, and about crates without a layer.
pub fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mut found = Vec::new();
    for file in files {
        let Some(name) = file.path.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == name) else {
            found.push(Complaint::of_file(file, format!("crate '{name}' has no layer: give it one in layers.rs")));
            continue;
        };
        for (index, used) in dependencies(&file.text) {
            if used != name && !allowed.contains(&used) {
                found.push(Complaint::of_line(
                    file,
                    index,
                    format!("'{name}' is not above '{used}' and may not use it"),
                ));
            }
        }
    }
    found
}

/// The crates of this workspace in a manifest's tables of dependencies.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim_end().ends_with("dependencies]");
        } else if inside && let Some(rest) = line.strip_prefix("headpond-") {
            found.extend(rest.split(['.', ' ', '=']).next().map(|name| (index, name)));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(name: &str, manifest: &str) -> Vec<String> {
        let file = SourceFile { path: format!("crates/{name}/Cargo.toml"), text: manifest.to_owned() };
        check(&[file]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_dependency_that_goes_up_is_found() {
        let manifest = "[package]\nname = \"headpond-map\"\n[dependencies]\nheadpond-engine.workspace = true\n";
        let found = complaints("map", manifest);
        assert_eq!(found, ["crates/map/Cargo.toml:4: 'map' is not above 'engine' and may not use it"]);
    }

    #[test]
    fn the_core_may_not_use_a_device_even_in_its_tests() {
        let manifest = "[dev-dependencies]\nheadpond-device = { path = \"../device\" }\n";
        assert_eq!(complaints("engine", manifest).len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        assert_eq!(complaints("attic", "").len(), 1);
    }
}
