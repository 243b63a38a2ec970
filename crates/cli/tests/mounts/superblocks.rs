//! A superblock copy that is damaged: the pool goes on with the other, says so, and heals it; and never
//! goes on with less than what was synced.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use headpond_format::{SUPERBLOCK_SLOTS, decode_superblock};

use crate::pond::{Pond, SIZE, pattern, write_and_sync};

fn is_whole(image: &[u8], slot: usize) -> bool {
    let at = SUPERBLOCK_SLOTS[slot] as usize;
    decode_superblock(&image[at..at + 4096]).is_ok()
}

fn spoil(pond: &Pond, slot: usize) {
    let file = OpenOptions::new().read(true).write(true).open(pond.flash()).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, SUPERBLOCK_SLOTS[slot] + 100).unwrap();
    file.write_all_at(&[byte[0] ^ 1], SUPERBLOCK_SLOTS[slot] + 100).unwrap();
}

#[test]
fn either_copy_may_be_damaged_after_a_stop_and_is_healed() {
    for slot in [0, 1] {
        let pond = Pond::new();
        pond.mount(&["--size", SIZE]).ok();
        write_and_sync(&pond.mnt().join("file"), &pattern(1 << 20, 1));
        pond.unmount(&["--keep-dirty"]).ok();
        spoil(&pond, slot);
        let said = pond.mount(&[]);
        said.ok().refused(0, &["superblock", "damaged", "repaired it"]);
        assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 1), "copy {slot}");
        pond.unmount(&["--keep-dirty"]).ok();
        let image = fs::read(pond.flash()).unwrap();
        assert!(is_whole(&image, 0) && is_whole(&image, 1), "copy {slot}");
        pond.mount(&[]).ok();
        assert!(fs::read(pond.mnt().join("file")).unwrap() == pattern(1 << 20, 1), "copy {slot}");
        pond.unmount(&[]).ok();
    }
}

#[test]
fn a_damaged_copy_after_a_crash_never_takes_synced_data_with_it() {
    for slot in [0, 1] {
        let mut pond = Pond::new();
        let first = pond.mount_foreground(&["--size", SIZE]);
        write_and_sync(&pond.mnt().join("first"), &pattern(1 << 20, 1));
        pond.kill(first);
        // In a life of its own: what was synced in it is known by one superblock only at first.
        let second = pond.mount_foreground(&[]);
        write_and_sync(&pond.mnt().join("second"), &pattern(1 << 20, 2));
        pond.kill(second);
        spoil(&pond, slot);
        let said = pond.mount(&[]);
        if said.status == 0 {
            for (name, seed) in [("first", 1), ("second", 2)] {
                let bytes = fs::read(pond.mnt().join(name)).unwrap();
                assert!(bytes == pattern(1 << 20, seed), "copy {slot}: {name} has {} bytes", bytes.len());
            }
            pond.unmount(&[]).ok();
        } else {
            said.refused(38, &["Nothing was written"]);
        }
    }
}
