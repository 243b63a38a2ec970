//! The examination of whole pools, as they were written, and with each of their structures
//! damaged in turn: what is damaged is named, with what it costs, and in a pool of several devices where. (Pools that the real engine
//! makes are damaged all over by the tests of `headpond-fuzz`.)

#![allow(clippy::unwrap_used)] // helpers outside of #[test] functions are tests, too

#[path = "../../format/tests/sparse/mod.rs"]
#[allow(dead_code)] // fixtures are only read here
mod sparse;

use std::path::Path;

use headpond_base::{BLOCK, Buf, BufMut, Errno, PoolId, Result};
use headpond_check::{Conclusion, Device, Report, Severity, examine, examine_members};
use headpond_engine::FlashRead;
use headpond_format::{
    Entry, SETTINGS_SLOTS, SUPERBLOCK_SLOTS, SettingsBlock, decode_batch, decode_checkpoint_head, decode_footer_tail,
    decode_segment_head, encode_settings,
};

struct Flash(Vec<u8>);

impl FlashRead for Flash {
    fn read(&mut self, offset: u64, len: usize) -> Result<Buf> {
        let at = usize::try_from(offset).map_err(|_| Errno::IO)?;
        Ok(BufMut::copy_of(self.0.get(at..at + len).ok_or(Errno::IO)?).freeze())
    }
}

fn golden(name: &str) -> Vec<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/tests/fixtures/v2");
    sparse::read(&fixtures.join(format!("{name}.hex")))
}

fn report(image: &[u8]) -> Report {
    examine(&mut Flash(image.to_vec()), image.len() as u64, &mut |_| {})
}

/// The blocks of an image for which something holds.
fn blocks(image: &[u8], holds: impl Fn(&[u8]) -> bool) -> Vec<usize> {
    (0..image.len()).step_by(BLOCK).filter(|at| holds(&image[*at..at + BLOCK])).collect()
}

#[test]
fn an_empty_pool_and_one_that_was_cut_off_are_sound() {
    let empty = report(&golden("empty-pool"));
    assert_eq!((empty.verdict, empty.segments.used, empty.files), (Conclusion::Sound, 0, 0));
    assert!(empty.findings.listed.is_empty(), "{:?}", empty.findings);
    let in_use = report(&golden("pool-in-use"));
    assert_eq!(in_use.verdict, Conclusion::Sound);
    assert!(in_use.findings.listed.is_empty(), "{:?}", in_use.findings);
    // By hand: see the engine's test of the same image.
    assert_eq!((in_use.blocks.cached, in_use.blocks.dirty, in_use.blocks.verified), (7, 4, 5));
    let [file] = &in_use.dirty_files[..] else { panic!("{:?}", in_use.dirty_files) };
    assert_eq!((&file.path[..], file.inode, file.size, file.dirty_bytes), ("data/kept", Some(77), 40_000, 4 * 4096));
}

#[test]
fn the_report_is_json_with_names_that_stay() {
    let json = serde_json::to_value(report(&golden("pool-in-use"))).unwrap();
    assert_eq!(json["verdict"], "sound");
    assert_eq!(json["pool"]["origin"], "/slow/mysql");
    assert_eq!(json["dirty_files"][0]["dirty_bytes"], 4 * 4096);
    assert_eq!(json["superblocks"][0]["counts"], true);
    for name in ["why", "device_bytes", "checkpoints", "segments", "dropped_batches", "blocks", "files", "findings"] {
        assert!(!json[name].is_null(), "{name}");
    }
}

#[test]
fn settings_that_are_damaged_are_named_and_cost_nothing_more() {
    let mut image = golden("pool-in-use");
    for (index, at) in SETTINGS_SLOTS.into_iter().enumerate() {
        let text = "mode = \"write-back\"\n".to_owned();
        let block = SettingsBlock { pool: PoolId([7; 16]), counter: 1 + index as u64, text };
        image[at as usize..at as usize + BLOCK].copy_from_slice(&encode_settings(&block).unwrap());
    }
    assert_eq!(report(&image).verdict, Conclusion::Sound);
    assert!(report(&image).settings[1].counts);
    image[SETTINGS_SLOTS[1] as usize + 50] ^= 1;
    let damaged = report(&image);
    assert_eq!((damaged.verdict, &damaged.findings.listed[0].structure[..]), (Conclusion::Harmless, "settings 1"));
    assert!(damaged.settings[0].counts);
}

#[test]
fn each_damaged_structure_is_named_with_what_it_costs() {
    let image = golden("pool-in-use");
    let heads = blocks(&image, |block| decode_segment_head(block).is_ok());
    let footers = blocks(&image, |block| decode_footer_tail(block).is_ok());
    let areas = blocks(&image, |block| decode_checkpoint_head(block).is_ok());
    let data = |dirty: bool| {
        // The payload starts behind the head of a batch with data.
        let is = |block: &[u8]| {
            let entries = decode_batch(block).ok().and_then(|(_, entries)| Entry::decode_all(entries).ok());
            let first = entries.into_iter().flatten().find_map(|(_, entry)| match entry {
                Entry::Data { dirty, .. } => Some(dirty),
                _ => None,
            });
            first == Some(dirty)
        };
        blocks(&image, is).into_iter().map(|at| at + BLOCK).collect::<Vec<_>>()
    };
    let harmless = (Conclusion::Harmless, Severity::Harmless);
    let (sealed_cold, sealed_host, last) = (data(false)[0], data(true)[0], *data(true).last().unwrap());
    for (at, names, (verdict, severity)) in [
        (SUPERBLOCK_SLOTS[0] as usize + 60, "superblock 0", harmless),
        (SUPERBLOCK_SLOTS[1] as usize + 60, "superblock 1", harmless),
        (areas[0] + 60, "checkpoint area 0", (Conclusion::Sound, Severity::Note)),
        (areas[1] + 60, "checkpoint area 1", (Conclusion::Refused, Severity::Loss)),
        (areas[1] + BLOCK + 60, "checkpoint area 1", (Conclusion::Refused, Severity::Loss)),
        (heads[0] + 60, "segment 0: head", harmless),
        (heads[3] + 60, "segment 3: head", harmless),
        (footers[0] + BLOCK - 20, "segment 0: footer", harmless),
        (sealed_cold + 9, "clean block 600 of data/kept", harmless),
        (sealed_host + 9, "dirty block 0 of data/kept", (Conclusion::Loss, Severity::Loss)),
        // The very last batch: nothing says that it was whole once.
        (last + 9, "log: end", (Conclusion::Sound, Severity::Note)),
        (last - BLOCK + 9, "segment 2: batch head", (Conclusion::Sound, Severity::Note)),
    ] {
        let mut damaged = image.clone();
        damaged[at] ^= 0x40;
        let report = report(&damaged);
        let named = report.findings.listed.iter().any(|found| found.structure == names && found.severity == severity);
        assert!(named, "{names} is not named: {:?}", report.findings);
        assert_eq!(report.verdict, verdict, "{names}: {:?}", report.findings);
    }
}

#[test]
fn a_head_that_a_power_cut_dropped_before_its_sync_is_no_damage() {
    let image = golden("pool-in-use");
    let heads = blocks(&image, |block| decode_segment_head(block).is_ok());
    let mut cut = image;
    cut[heads[0]..heads[0] + BLOCK].fill(0);
    let report = report(&cut);
    let found = report.findings.listed.iter().find(|found| found.structure == "segment 0: head").unwrap();
    assert_eq!((report.verdict, found.severity), (Conclusion::Sound, Severity::Note), "{:?}", report.findings);
}

fn mirrored() -> [Vec<u8>; 2] {
    [0, 1].map(|member| golden(&format!("mirrored-pool-in-use-member-{member}")))
}

/// The report on these devices, in this order.
fn report_of(images: &[&[u8]]) -> Report {
    let mut flashes: Vec<Flash> = images.iter().map(|image| Flash(image.to_vec())).collect();
    let devices = flashes.iter_mut().map(|flash| Device { bytes: flash.0.len() as u64, flash });
    examine_members(devices.collect(), &mut |_| {})
}

#[test]
fn a_mirrored_pool_is_sound_with_both_members_and_harmed_by_the_lack_of_either() {
    let [one, two] = mirrored();
    for images in [[&one[..], &two], [&two, &one]] {
        let report = report_of(&images);
        assert_eq!(report.verdict, Conclusion::Sound);
        assert!(report.findings.listed.is_empty(), "{:?}", report.findings);
        // By hand: see the engine's test of the same images.
        assert_eq!((report.blocks.cached, report.blocks.dirty, report.blocks.verified), (7, 4, 5));
    }
    for (image, missing) in [(&one, "member 1"), (&two, "member 0")] {
        let report = report_of(&[image]);
        assert_eq!(report.verdict, Conclusion::Harmless, "{:?}", report.findings);
        let [found] = &report.findings.listed[..] else { panic!("{:?}", report.findings) };
        assert_eq!((&found.structure[..], found.severity), (missing, Severity::Harmless));
        // Each has one of the two clean blocks that lie once.
        assert_eq!((report.blocks.cached, report.blocks.dirty, report.blocks.verified), (6, 4, 4));
    }
}

fn with_row() -> [Vec<u8>; 3] {
    [0, 1, 2].map(|member| golden(&format!("parity-pool-in-use-member-{member}")))
}

#[test]
fn a_pool_with_a_row_is_sound_with_all_members_and_harmed_by_the_lack_of_any_one() {
    let pool = with_row();
    let [zero, one, two] = &pool;
    for images in [[&zero[..], one, two], [two, zero, one]] {
        let report = report_of(&images);
        assert_eq!(report.verdict, Conclusion::Sound);
        assert!(report.findings.listed.is_empty(), "{:?}", report.findings);
        // By hand: see the engine's test of the same images.
        assert_eq!((report.blocks.cached, report.blocks.dirty, report.blocks.verified), (9, 6, 7));
    }
    for missing in 0..pool.len() {
        let rest: Vec<&[u8]> =
            pool.iter().enumerate().filter(|(member, _)| *member != missing).map(|(_, image)| &image[..]).collect();
        let report = report_of(&rest);
        assert_eq!(report.verdict, Conclusion::Harmless, "{:?}", report.findings);
        let [found] = &report.findings.listed[..] else { panic!("{:?}", report.findings) };
        assert_eq!((found.structure.clone(), found.severity), (format!("member {missing}"), Severity::Harmless));
        assert_eq!((report.blocks.dirty, report.blocks.damaged_dirty), (6, 0));
        let report = report_of(&[&pool[missing]]);
        assert_eq!(report.verdict, Conclusion::Refused, "{:?}", report.findings);
    }
}

#[test]
fn a_block_that_is_damaged_in_its_row_is_named_with_its_member_and_loses_nothing() {
    let pool = with_row();
    let block = |byte: u8| {
        let is = |found: &u8| *found == byte;
        let of = |image: &Vec<u8>| blocks(image, |block| block.iter().all(is)).first().copied();
        pool.iter().enumerate().find_map(|(member, image)| Some((member, of(image)?))).unwrap()
    };
    for (number, byte) in [(0, 0x10), (3, 0x13)] {
        let (member, at) = block(byte);
        let mut pool = pool.clone();
        pool[member][at + 9] ^= 0x40;
        let report = report_of(&[&pool[0], &pool[1], &pool[2]]);
        let named = format!("member {member}: dirty block {number} of data/kept");
        let [found] = &report.findings.listed[..] else { panic!("{:?}", report.findings) };
        assert_eq!((&found.structure, found.severity, found.offset), (&named, Severity::Harmless, at as u64));
        assert_eq!((report.verdict, report.blocks.damaged_dirty), (Conclusion::Harmless, 0));
    }
}

#[test]
fn any_one_damaged_block_of_a_pool_with_a_row_loses_nothing() {
    let pool = with_row();
    let mut of_rows = 0;
    for (member, image) in pool.iter().enumerate() {
        for at in blocks(image, |block| block.iter().any(|byte| *byte != 0)) {
            let mut pool = pool.clone();
            pool[member][at + 60] ^= 0x40;
            let report = report_of(&[&pool[0], &pool[1], &pool[2]]);
            let is_lost = matches!(report.verdict, Conclusion::Loss | Conclusion::Refused);
            let lost = (is_lost, report.blocks.damaged_dirty);
            assert_eq!(lost, (false, 0), "byte {} of member {member}: {:?}", at + 60, report.findings);
            of_rows += report.findings.listed.iter().filter(|found| found.structure.contains("row of dirty")).count();
        }
    }
    // Blocks 0, 2, 3 and 4, by the damage of the parity, and where the two of them that lie above each other have it.
    assert!(of_rows >= 4, "{of_rows}");
}

/// Where a member has a block of the file that is filled with this byte, as a mirror has it.
fn filled(image: &[u8], byte: u8) -> usize {
    blocks(image, |block| block.iter().all(|found| *found == byte))[0]
}

#[test]
fn a_damaged_copy_is_named_with_its_member_and_loses_nothing_unless_it_is_the_last() {
    let pool = mirrored();
    let spoiled = |which: &[usize], byte: u8| {
        let mut pool = pool.clone();
        for member in which {
            let at = filled(&pool[*member], byte) + 9;
            pool[*member][at] ^= 0x40;
        }
        report_of(&[&pool[0], &pool[1]])
    };
    for member in [0, 1] {
        // Block 0 lies in a sealed segment. Block 1 lies in the tail, where a crash may leave two copies that differ.
        for (block, byte, severity) in [(0, 0x10, Severity::Harmless), (1, 0x31, Severity::Note)] {
            let report = spoiled(&[member], byte);
            let [found] = &report.findings.listed[..] else { panic!("{:?}", report.findings) };
            let named = format!("member {member}: dirty block {block} of data/kept");
            assert_eq!((&found.structure, found.severity), (&named, severity), "{}", found.what);
            assert_eq!(found.offset, filled(&pool[member], byte) as u64, "{named}");
            assert_eq!((report.blocks.damaged_dirty, report.dirty_files[0].damaged_dirty_blocks), (0, 0));
        }
    }
    let report = spoiled(&[0, 1], 0x10);
    assert_eq!((report.verdict, report.blocks.damaged_dirty), (Conclusion::Loss, 1), "{:?}", report.findings);
    assert_eq!(report.dirty_files[0].damaged_dirty_blocks, 1);
}

#[test]
fn each_damaged_structure_of_one_member_is_named_with_the_member() {
    let pool = mirrored();
    for member in [0, 1] {
        let image = &pool[member];
        let is_host = |at: usize| {
            let (_, placement) = decode_segment_head(&image[at..at + BLOCK]).unwrap();
            placement.layout.places().len() == 2
        };
        let heads = blocks(image, |block| decode_segment_head(block).is_ok());
        let host = heads.into_iter().find(|at| is_host(*at)).unwrap();
        let footer = blocks(image, |block| decode_footer_tail(block).is_ok())[0];
        let (segment, _) = decode_segment_head(&image[host..host + BLOCK]).unwrap();
        let head = format!("member {member}: segment {}: head", segment.segment);
        let device = format!("device {}", member + 1);
        for (at, names) in [
            (SUPERBLOCK_SLOTS[0] as usize + 60, format!("{device}: superblock 0")),
            (host + 60, head),
            (footer + BLOCK - 20, "footer".to_owned()),
        ] {
            let mut damaged = pool.clone();
            damaged[member][at] ^= 0x40;
            let report = report_of(&[&damaged[0], &damaged[1]]);
            let of_member = format!("member {member}: ");
            let is_named = |found: &&headpond_check::Finding| {
                let own = found.structure.starts_with(&of_member) || found.structure.starts_with(&device);
                own && found.structure.contains(&names) && found.severity == Severity::Harmless
            };
            assert!(report.findings.listed.iter().any(|found| is_named(&found)), "{names}: {:?}", report.findings);
            assert_eq!(report.verdict, Conclusion::Harmless, "{names}: {:?}", report.findings);
        }
    }
}
