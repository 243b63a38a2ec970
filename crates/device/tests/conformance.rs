//! Every reactor and layer keeps the contract of disks: one table, all kinds.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::time::Duration;

use headpond_base::{BLOCK, BLOCK_U64, Buf, BufMut, Errno, MemberId};
use headpond_device::{
    Backend, Completion, DiskOp, End, Fault, FaultPlan, Faults, Fill, Flash, MemoryDisks, MemoryImage, OpKind, Reactor,
    Tag, TrimPolicy, Waker, Withhold, start_reactor,
};

const BYTES: u64 = 8 << 20;

/// The disk under test.
const DISK: MemberId = MemberId(0);

/// A reactor with the disk under test, and what must live as long as it.
type Made = (Box<dyn Reactor>, Option<tempfile::TempDir>);

fn on_file(backend: Backend, trim: TrimPolicy) -> Made {
    let dir = tempfile::tempdir().unwrap();
    let flash = Flash::create(&dir.path().join("flash"), BYTES, Fill::Reserved).unwrap();
    (start_reactor(vec![(DISK, flash)], backend, trim).unwrap(), Some(dir))
}

/// A disk in memory, and its bytes, which outlive it.
fn memory() -> (MemoryDisks, MemoryImage) {
    let image = MemoryImage::zeroed(BYTES as usize);
    (MemoryDisks::on(vec![(DISK, image.clone())]), image)
}

/// A reactor whose owner's thread carries out each operation that it may carry out.
struct Alone(Box<dyn Reactor>);

impl Reactor for Alone {
    fn bytes(&self, disk: MemberId) -> u64 {
        self.0.bytes(disk)
    }

    fn remove(&mut self, disk: MemberId) {
        self.0.remove(disk);
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn submit(&mut self, disk: MemberId, op: DiskOp) {
        self.0.submit(disk, op);
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Option<Duration>) -> std::io::Result<()> {
        if self.0.carry_out_alone(true, done) { Ok(()) } else { self.0.wait(done, timeout) }
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }
}

fn alone((reactor, dir): Made) -> Made {
    (Box::new(Alone(reactor)), dir)
}

/// How to make one, and what it is called.
type Row = (&'static str, fn() -> Made);

/// Every kind of device that there is.
fn table() -> Vec<Row> {
    vec![
        ("memory", || (Box::new(MemoryDisks::new(BYTES as usize)), None)),
        ("psync", || on_file(Backend::Psync, TrimPolicy::Devices)),
        ("uring", || on_file(Backend::Uring, TrimPolicy::Devices)),
        ("psync, trimmed", || on_file(Backend::Psync, TrimPolicy::All)),
        ("uring, trimmed", || on_file(Backend::Uring, TrimPolicy::All)),
        ("psync, its owner carries out what it may", || alone(on_file(Backend::Psync, TrimPolicy::All))),
        ("uring, its owner carries out what it may", || alone(on_file(Backend::Uring, TrimPolicy::All))),
        ("faults without a fault on uring", || {
            let (device, dir) = on_file(Backend::Uring, TrimPolicy::Devices);
            (Box::new(Faults::new(device, DISK, FaultPlan::default())), dir)
        }),
        ("withheld writes on memory", || {
            let withhold = Some(Withhold { early_per_mille: 300, ..Withhold::default() });
            let plan = FaultPlan { withhold, ..FaultPlan::default() };
            (Box::new(Faults::new(MemoryDisks::new(BYTES as usize), DISK, plan)), None)
        }),
        ("slow psync that withholds little", || {
            let withhold =
                Some(Withhold { early_per_mille: 300, torn_per_mille: 500, bytes_max: 1 << 16, seed: 3, lies: false });
            let plan = FaultPlan { withhold, delay: Duration::from_millis(1), ..FaultPlan::default() };
            let (device, dir) = on_file(Backend::Psync, TrimPolicy::All);
            (Box::new(Faults::new(device, DISK, plan)), dir)
        }),
    ]
}

/// A block whose content tells its number and version.
fn pattern(block: u64, version: u64) -> Vec<u8> {
    (0..BLOCK as u64).map(|byte| (block * 31 + version * 7 + byte / 8) as u8).collect()
}

fn blocks(first: u64, count: u64, version: u64) -> Buf {
    let bytes: Vec<u8> = (first..first + count).flat_map(|block| pattern(block, version)).collect();
    BufMut::copy_of(&bytes).freeze()
}

/// Submits and waits until all are done.
fn run(device: &mut dyn Reactor, ops: Vec<DiskOp>) -> HashMap<Tag, Completion> {
    let count = ops.iter().filter(|op| !matches!(op, DiskOp::Trim { .. })).count();
    ops.into_iter().for_each(|op| device.submit(DISK, op));
    let (mut all, mut done) = (HashMap::new(), Vec::new());
    while all.len() < count {
        device.wait(&mut done, None).unwrap();
        for one in done.drain(..) {
            assert_eq!(one.disk, DISK);
            assert!(all.insert(one.tag, one).is_none(), "done twice");
        }
    }
    all
}

fn read(device: &mut dyn Reactor, block: u64, count: u64) -> Result<Buf, Errno> {
    let op = DiskOp::Read { tag: Tag(1), offset: block * BLOCK_U64, len: count as usize * BLOCK };
    match run(device, vec![op]).remove(&Tag(1)) {
        Some(Completion { end: End::Read(result), .. }) => result,
        other => panic!("not the end of a read: {other:?}"),
    }
}

fn write(device: &mut dyn Reactor, block: u64, data: Buf) -> Result<(), Errno> {
    let op = DiskOp::Write { tag: Tag(2), offset: block * BLOCK_U64, data };
    match run(device, vec![op]).remove(&Tag(2)) {
        Some(Completion { end: End::Write(result), .. }) => result,
        other => panic!("not the end of a write: {other:?}"),
    }
}

fn sync(device: &mut dyn Reactor) -> Result<(), Errno> {
    match run(device, vec![DiskOp::Sync { tag: Tag(3) }]).remove(&Tag(3)) {
        Some(Completion { end: End::Sync(result), .. }) => result,
        other => panic!("not the end of a sync: {other:?}"),
    }
}

#[test]
fn what_is_written_is_read_back_before_and_after_a_sync() {
    for (name, make) in table() {
        let (mut device, _dir) = make();
        assert_eq!(device.bytes(DISK), BYTES, "{name}");
        write(&mut device, 3, blocks(3, 5, 1)).unwrap();
        write(&mut device, 5, blocks(5, 1, 2)).unwrap();
        let expected = [blocks(3, 2, 1).to_vec(), blocks(5, 1, 2).to_vec(), blocks(6, 2, 1).to_vec()].concat();
        assert_eq!(read(&mut device, 3, 5).unwrap()[..], expected, "{name}: before");
        sync(&mut device).unwrap();
        assert_eq!(read(&mut device, 3, 5).unwrap()[..], expected, "{name}: after");
        assert!(read(&mut device, 8, 1).unwrap().iter().all(|byte| *byte == 0), "{name}: never written");
    }
}

#[test]
fn the_owner_carries_out_an_operation_by_itself_only_if_that_is_all_there_is_to_do() {
    for backend in [Backend::Psync, Backend::Uring] {
        let (mut device, _dir) = on_file(backend, TrimPolicy::Devices);
        let mut done = Vec::new();
        assert!(!device.carry_out_alone(true, &mut done), "{backend:?}: nothing is submitted");
        device.submit(DISK, DiskOp::Sync { tag: Tag(1) });
        assert!(device.carry_out_alone(true, &mut done), "{backend:?}");
        assert!(matches!(done[..], [Completion { disk: DISK, tag: Tag(1), end: End::Sync(Ok(())) }]), "{done:?}");
        done.clear();
        device.submit(DISK, DiskOp::Write { tag: Tag(4), offset: 4096, data: blocks(1, 1, 2) });
        assert!(device.carry_out_alone(true, &mut done), "{backend:?}: a small write");
        assert!(matches!(done[..], [Completion { tag: Tag(4), end: End::Write(Ok(())), .. }]), "{done:?}");
        done.clear();
        assert_eq!(read(&mut device, 1, 1).unwrap()[..], blocks(1, 1, 2)[..], "{backend:?}");
        device.submit(DISK, DiskOp::Write { tag: Tag(2), offset: 0, data: blocks(0, 1, 1) });
        device.submit(DISK, DiskOp::Sync { tag: Tag(3) });
        assert!(!device.carry_out_alone(true, &mut done) && done.is_empty(), "{backend:?}: two operations");
        while done.len() < 2 {
            device.wait(&mut done, None).unwrap();
        }
        assert!(!device.carry_out_alone(true, &mut done), "{backend:?}: all have ended");
        assert_eq!(done.len(), 2, "{backend:?}");
        assert_eq!(read(&mut device, 0, 1).unwrap()[..], blocks(0, 1, 1)[..], "{backend:?}");
    }
}

#[test]
fn large_transfers_and_the_last_block_work() {
    for (name, make) in table() {
        let (mut device, _dir) = make();
        let all = BYTES / BLOCK_U64;
        write(&mut device, 0, blocks(0, all, 1)).unwrap();
        sync(&mut device).unwrap();
        assert_eq!(read(&mut device, 0, all).unwrap()[..], blocks(0, all, 1)[..], "{name}");
        assert_eq!(read(&mut device, all - 1, 1).unwrap()[..], blocks(all - 1, 1, 1)[..], "{name}");
    }
}

#[test]
fn unaligned_empty_and_outside_are_refused_and_do_no_harm() {
    for (name, make) in table() {
        let (mut device, _dir) = make();
        let good = || blocks(0, 2, 1);
        let tag = Tag(9);
        let bad = [
            DiskOp::Read { tag, offset: 512, len: BLOCK },
            DiskOp::Read { tag, offset: 0, len: 100 },
            DiskOp::Read { tag, offset: 0, len: 0 },
            DiskOp::Read { tag, offset: BYTES, len: BLOCK },
            DiskOp::Read { tag, offset: BYTES - BLOCK_U64, len: 2 * BLOCK },
            DiskOp::Read { tag, offset: u64::MAX - BLOCK_U64 + 1, len: BLOCK },
            DiskOp::Write { tag, offset: 1, data: good() },
            DiskOp::Write { tag, offset: 0, data: good().slice(0..100) },
            DiskOp::Write { tag, offset: 0, data: good().slice(512..512 + BLOCK) },
            DiskOp::Write { tag, offset: 0, data: Buf::empty() },
            DiskOp::Write { tag, offset: BYTES - BLOCK_U64, data: good() },
        ];
        for op in bad {
            let what = format!("{name}: {op:?}");
            match run(&mut device, vec![op]).remove(&tag) {
                Some(Completion { end: End::Read(Err(errno)) | End::Write(Err(errno)), .. }) => {
                    assert_eq!(errno, Errno::INVAL, "{what}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        device.submit(DISK, DiskOp::Trim { offset: 100, len: BLOCK_U64 });
        device.submit(DISK, DiskOp::Trim { offset: 0, len: 2 * BYTES });
        write(&mut device, 0, good()).unwrap();
        assert_eq!(read(&mut device, 0, 2).unwrap()[..], good()[..], "{name}");
    }
}

#[test]
fn more_operations_at_once_than_any_depth_all_end_once() {
    for (name, make) in table() {
        let (mut device, _dir) = make();
        let all = BYTES / BLOCK_U64;
        let write = |block| DiskOp::Write { tag: Tag(block), offset: block * BLOCK_U64, data: blocks(block, 1, 4) };
        let done = run(&mut device, (0..all).map(write).collect());
        assert!(done.values().all(|done| matches!(done.end, End::Write(Ok(())))), "{name}");
        let mixed = |block: u64| match block % 5 {
            0 => DiskOp::Sync { tag: Tag(block) },
            1 => DiskOp::Write { tag: Tag(block), offset: block * BLOCK_U64, data: blocks(block, 1, 5) },
            _ => DiskOp::Read { tag: Tag(block), offset: block * BLOCK_U64, len: BLOCK },
        };
        for (tag, done) in run(&mut device, (0..all).map(mixed).collect()) {
            match done.end {
                End::Read(result) => assert_eq!(result.unwrap()[..], pattern(tag.0, 4), "{name}"),
                End::Write(result) | End::Sync(result) => result.unwrap(),
            }
        }
        assert_eq!(read(&mut device, 6, 1).unwrap()[..], pattern(6, 5), "{name}");
    }
}

#[test]
fn a_write_after_a_trim_is_never_lost_to_it() {
    for (name, make) in table() {
        let (mut device, _dir) = make();
        let all = BYTES / BLOCK_U64;
        for version in 0..20 {
            device.submit(DISK, DiskOp::Trim { offset: 0, len: BYTES });
            device.submit(DISK, DiskOp::Trim { offset: BYTES / 2, len: BYTES / 2 });
            let write =
                |block| DiskOp::Write { tag: Tag(block), offset: block * BLOCK_U64, data: blocks(block, 1, version) };
            run(&mut device, (0..all).step_by(64).map(write).collect());
            for block in (0..all).step_by(64) {
                assert_eq!(read(&mut device, block, 1).unwrap()[..], pattern(block, version), "{name}");
            }
        }
    }
}

#[test]
fn another_thread_ends_a_wait_and_a_wake_beforehand_is_not_lost() {
    for (name, make) in table() {
        let (mut device, _dir) = make();
        let mut done = Vec::new();
        device.waker().wake();
        // Without the wake this would wait for ever.
        device.wait(&mut done, None).unwrap();
        for _ in 0..50 {
            let waker = device.waker();
            let told = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let telling = told.clone();
            let other = std::thread::spawn(move || {
                telling.store(true, std::sync::atomic::Ordering::SeqCst);
                waker.wake();
            });
            while !told.load(std::sync::atomic::Ordering::SeqCst) {
                device.wait(&mut done, None).unwrap();
            }
            other.join().unwrap();
        }
        assert!(done.is_empty(), "{name}");
        device.wait(&mut done, Some(Duration::ZERO)).unwrap();
        device.wait(&mut done, Some(Duration::from_millis(1))).unwrap();
    }
}

#[test]
fn a_device_may_be_made_on_one_thread_and_used_on_another() {
    for (name, make) in table() {
        let (mut device, _dir) = make();
        let user = std::thread::spawn(move || {
            write(&mut device, 7, blocks(7, 1, 1)).unwrap();
            read(&mut device, 7, 1).unwrap()
        });
        assert_eq!(user.join().unwrap()[..], pattern(7, 1), "{name}");
    }
}

#[test]
fn dropping_a_device_with_operations_under_way_is_safe() {
    for (_, make) in table() {
        let (mut device, _dir) = make();
        for block in 0..300 {
            device.submit(DISK, DiskOp::Read { tag: Tag(block), offset: block * BLOCK_U64, len: BLOCK });
        }
        device.wait(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
        drop(device);
    }
}

#[test]
fn a_device_that_ends_early_is_an_io_error_not_a_hang() {
    for backend in [Backend::Uring, Backend::Psync] {
        let (mut device, dir) = on_file(backend, TrimPolicy::Devices);
        let path = dir.as_ref().unwrap().path().join("flash");
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(BLOCK_U64 * 3).unwrap();
        assert!(read(&mut device, 0, 3).is_ok());
        assert_eq!(read(&mut device, 0, 5).unwrap_err(), Errno::IO, "{backend:?}");
        assert_eq!(read(&mut device, 100, 1).unwrap_err(), Errno::IO, "{backend:?}");
    }
}

#[test]
fn an_error_of_the_kernel_arrives_as_its_own_number() {
    // A limit on the size of files makes writes beyond it fail with EFBIG. It counts for a whole
    // process, so this test goes on in a child that has it.
    const PATH: &str = "HEADPOND_TEST_LIMITED_FLASH";
    let Some(path) = std::env::var_os(PATH) else {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flash");
        drop(Flash::create(&path, 1 << 20, Fill::Zeros).unwrap());
        let script = "ulimit -f 64; trap '' XFSZ; exec \"$0\" --exact an_error_of_the_kernel_arrives_as_its_own_number";
        let mut child = std::process::Command::new("sh");
        child.args(["-c", script]).arg(std::env::current_exe().unwrap()).env(PATH, &path);
        assert!(child.status().unwrap().success());
        return;
    };
    for backend in [Backend::Uring, Backend::Psync] {
        let flash = Flash::open(path.as_ref()).unwrap();
        let mut device = start_reactor(vec![(DISK, flash)], backend, TrimPolicy::Off).unwrap();
        assert_eq!(write(&mut device, 0, blocks(0, 1, 1)), Ok(()), "{backend:?}");
        assert_eq!(write(&mut device, 128, blocks(0, 1, 1)), Err(Errno::FBIG), "{backend:?}");
        assert!(read(&mut device, 128, 1).is_ok(), "{backend:?}");
    }
}

#[test]
fn uring_and_psync_give_equal_results_for_equal_operations() {
    let dir = tempfile::tempdir().unwrap();
    let mut devices: Vec<_> = [Backend::Uring, Backend::Psync]
        .into_iter()
        .enumerate()
        .map(|(number, backend)| {
            let flash = Flash::create(&dir.path().join(format!("{number}")), BYTES, Fill::Reserved).unwrap();
            start_reactor(vec![(DISK, flash)], backend, TrimPolicy::Devices).unwrap()
        })
        .collect();
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for round in 0..300 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (block, count) = ((random >> 33) % 2040, 1 + (random >> 50) % 20);
        let results: Vec<_> = devices
            .iter_mut()
            .map(|device| match round % 3 {
                0 => write(device, block, blocks(block, count, round)).map(|()| Vec::new()),
                1 => sync(device).map(|()| Vec::new()),
                _ => read(device, block, count).map(|buf| buf.to_vec()),
            })
            .collect();
        assert_eq!(results[0], results[1], "round {round}, block {block}, {count} blocks");
    }
    drop(devices);
    let bytes = |number| std::fs::read(dir.path().join(format!("{number}"))).unwrap();
    assert!(bytes(0) == bytes(1));
}

#[test]
fn a_cut_loses_exactly_what_was_not_synced() {
    let (memory, image) = memory();
    let plan = FaultPlan { withhold: Some(Withhold::default()), ..FaultPlan::default() };
    let mut device = Faults::new(memory, DISK, plan);
    let handle = device.handle();
    write(&mut device, 0, blocks(0, 4, 1)).unwrap();
    sync(&mut device).unwrap();
    write(&mut device, 2, blocks(2, 4, 2)).unwrap();
    assert_eq!(read(&mut device, 2, 4).unwrap()[..], blocks(2, 4, 2)[..]);
    handle.cut();
    assert_eq!(sync(&mut device), Err(Errno::IO));
    assert_eq!(read(&mut device, 0, 1).unwrap_err(), Errno::IO);
    assert_eq!(write(&mut device, 0, blocks(0, 1, 3)), Err(Errno::IO));
    drop(device);
    let mut after = MemoryDisks::on(vec![(DISK, image)]);
    assert_eq!(read(&mut after, 0, 4).unwrap()[..], blocks(0, 4, 1)[..]);
    assert!(read(&mut after, 4, 2).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn early_blocks_tear_unsynced_writes_and_never_synced_ones() {
    let (memory, image) = memory();
    let withhold = Some(Withhold { early_per_mille: 500, seed: 7, ..Withhold::default() });
    let mut device = Faults::new(memory, DISK, FaultPlan { withhold, ..FaultPlan::default() });
    write(&mut device, 0, blocks(0, 64, 1)).unwrap();
    sync(&mut device).unwrap();
    write(&mut device, 32, blocks(32, 64, 2)).unwrap();
    // Dropped without a cut: as when the process is killed.
    drop(device);
    let mut after = MemoryDisks::on(vec![(DISK, image)]);
    assert_eq!(read(&mut after, 0, 32).unwrap()[..], blocks(0, 32, 1)[..]);
    let newer = (32..96).filter(|block| read(&mut after, *block, 1).unwrap()[..] == pattern(*block, 2)).count();
    let older = (32..64).filter(|block| read(&mut after, *block, 1).unwrap()[..] == pattern(*block, 1)).count();
    assert!(newer > 10 && older > 5, "{newer} newer, {older} older");
}

#[test]
fn torn_blocks_mix_old_and_new_sectors_and_what_was_synced_stays_whole() {
    const SECTOR: usize = 512;
    for seed in 1..20 {
        let (memory, image) = memory();
        let withhold = Some(Withhold { early_per_mille: 600, torn_per_mille: 600, seed, ..Withhold::default() });
        let mut device = Faults::new(memory, DISK, FaultPlan { withhold, ..FaultPlan::default() });
        write(&mut device, 0, blocks(0, 64, 1)).unwrap();
        write(&mut device, 8, blocks(8, 56, 2)).unwrap();
        sync(&mut device).unwrap();
        write(&mut device, 32, blocks(32, 32, 3)).unwrap();
        assert_eq!(read(&mut device, 32, 32).unwrap()[..], blocks(32, 32, 3)[..]);
        drop(device);
        let mut after = MemoryDisks::on(vec![(DISK, image)]);
        assert_eq!(read(&mut after, 0, 8).unwrap()[..], blocks(0, 8, 1)[..]);
        assert_eq!(read(&mut after, 8, 24).unwrap()[..], blocks(8, 24, 2)[..]);
        let mut torn = 0;
        for block in 32..64 {
            let (found, old, new) = (read(&mut after, block, 1).unwrap(), pattern(block, 2), pattern(block, 3));
            let newer = (0..BLOCK).step_by(SECTOR).filter(|&at| {
                let sector = &found[at..at + SECTOR];
                assert!(sector == &old[at..at + SECTOR] || sector == &new[at..at + SECTOR], "sector of nobody");
                sector == &new[at..at + SECTOR]
            });
            torn += usize::from((1..BLOCK / SECTOR).contains(&newer.count()));
        }
        assert!(torn > 0, "seed {seed} tore nothing");
    }
}

#[test]
fn a_device_that_lies_loses_what_it_said_was_synced() {
    let (memory, image) = memory();
    let withhold = Some(Withhold { lies: true, ..Withhold::default() });
    let mut device = Faults::new(memory, DISK, FaultPlan { withhold, ..FaultPlan::default() });
    write(&mut device, 0, blocks(0, 4, 1)).unwrap();
    sync(&mut device).unwrap();
    assert_eq!(read(&mut device, 0, 4).unwrap()[..], blocks(0, 4, 1)[..]);
    drop(device);
    assert!(read(&mut MemoryDisks::on(vec![(DISK, image)]), 0, 4).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn the_operations_that_are_to_fail_do_and_no_others() {
    let fault = |kind, first, count, errno| Fault { kind, first, count, errno };
    let faults = vec![fault(OpKind::Write, 1, 1, Errno::NOSPC), fault(OpKind::Sync, 0, 2, Errno::IO)];
    let mut device = Faults::new(MemoryDisks::new(BYTES as usize), DISK, FaultPlan { faults, ..FaultPlan::default() });
    let handle = device.handle();
    assert_eq!(write(&mut device, 0, blocks(0, 1, 1)), Ok(()));
    assert_eq!(write(&mut device, 0, blocks(0, 1, 2)), Err(Errno::NOSPC));
    assert_eq!(write(&mut device, 1, blocks(1, 1, 3)), Ok(()));
    assert_eq!([sync(&mut device), sync(&mut device), sync(&mut device)], [Err(Errno::IO), Err(Errno::IO), Ok(())]);
    assert_eq!(read(&mut device, 0, 1).unwrap()[..], pattern(0, 1));
    handle.fail(fault(OpKind::Read, 1, u64::MAX, Errno::IO));
    assert!(read(&mut device, 0, 1).is_ok());
    assert_eq!(read(&mut device, 0, 1).unwrap_err(), Errno::IO);
    handle.heal();
    assert!(read(&mut device, 0, 1).is_ok());
    assert_eq!(handle.count(OpKind::Write), 3);
}
