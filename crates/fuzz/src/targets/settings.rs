//! A block of settings.

use headpond_base::{BLOCK, PoolId};
use headpond_format::{SETTINGS_TEXT_MAX, SettingsBlock, decode_settings, encode_settings};

use super::{same, told};
use crate::seals::Seal;
use crate::seed::Seed;
use crate::subject::{Base, Told};

const POOL: PoolId = PoolId([7; 16]);

pub(super) fn base(seed: u64) -> Base {
    let mut seed = Seed(seed);
    let text = "mode = \"write-back\"\n".repeat(seed.index(SETTINGS_TEXT_MAX / 20));
    let block = SettingsBlock { pool: POOL, counter: 1 + seed.below(1 << 40), text };
    let bytes = encode_settings(&block).unwrap_or_else(|| vec![0; BLOCK]);
    Base { bytes, devices: 1, seals: vec![Seal::new(0..BLOCK, 8, 12..64)] }
}

pub(super) fn run(bytes: &[u8]) -> Result<Told, String> {
    let decoded = decode_settings(bytes, POOL);
    if let Ok(settings) = &decoded {
        let block = encode_settings(settings).ok_or("settings that decode are too long to encode")?;
        same("a block of settings", &decoded, &decode_settings(&block, POOL))?;
    }
    Ok(told(decoded))
}
