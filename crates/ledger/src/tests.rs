//! A process dies after each of its stores, and its successor reads what it left.

use std::sync::atomic::AtomicU64 as Count;

use super::*;

const ROOM: LedgerRoom = LedgerRoom { inodes: 4, handles: 3 };

fn memory(room: LedgerRoom) -> &'static [AtomicU64] {
    let words: Vec<AtomicU64> = (0..room.words()).map(|_| AtomicU64::new(0)).collect();
    Box::leak(words.into_boxed_slice())
}

const fn inode(node: u64) -> InodeRow {
    InodeRow { node, inode: node + 100, birth: -7, generation: 9, kind: 2, managed: true, device: (8, 3) }
}

const fn handle(number: u64) -> HandleRow {
    HandleRow {
        number,
        kind: HandleKind::Directory,
        inode: 1,
        writes: true,
        atomic: false,
        opener: 1000,
        flags: 2,
        unique: 77,
        promise: 0,
    }
}

/// What a successor sees, as text.
fn seen(words: &'static [AtomicU64]) -> String {
    let ledger = match MountLedger::open(words) {
        Ok(ledger) => ledger,
        Err(refusal) => return format!("{refusal:?}"),
    };
    let inodes: Vec<_> = ledger.stored_inodes();
    let inodes: Vec<_> = inodes
        .iter()
        .map(|stored| (stored.row, stored.lookups, stored.place.clone(), stored.has(InodeMark::Kept)))
        .collect();
    let handles = ledger.stored_handles();
    let handles: Vec<_> = handles.iter().map(|(row, _)| *row).collect();
    format!("{inodes:?} {handles:?} {:?} {:?}", ledger.counted(), ledger.exchanges())
}

/// Does something in memory of its own as often as it has stores, and dies after each of them. Returns the different
/// things that a successor sees, in order.
fn lives(
    before: impl Fn(&Arc<MountLedger>) -> Vec<InodeEntry>,
    act: impl Fn(&Arc<MountLedger>, Vec<InodeEntry>),
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for stores in 0.. {
        let words = memory(ROOM);
        let left: &'static Count = Box::leak(Box::new(Count::new(u64::MAX)));
        let lives = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        let ledger = MountLedger::create_mortal(words, ROOM, Box::leak(Box::new(lives))).unwrap();
        let entries = before(&ledger);
        left.store(stores, Ordering::SeqCst);
        act(&ledger, entries);
        let died = left.load(Ordering::SeqCst) == 0;
        let copy: Vec<AtomicU64> =
            words.iter().map(|word| AtomicU64::new(word.load(std::sync::atomic::Ordering::SeqCst))).collect();
        let seen = seen(Box::leak(copy.into_boxed_slice()));
        if all.last() != Some(&seen) {
            all.push(seen);
        }
        if !died {
            return all;
        }
    }
    all
}

#[test]
fn an_inode_is_there_whole_or_not_at_all() {
    let none = |_: &Arc<MountLedger>| Vec::new();
    let all = lives(none, |ledger, _| std::mem::forget(ledger.enter(&inode(5), 1, &[InodeMark::Kept])));
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(all[1].contains("node: 5") && all[1].contains("birth: -7"), "{}", all[1]);
}

#[test]
fn a_place_is_the_old_one_or_the_new_one() {
    let before = |ledger: &Arc<MountLedger>| {
        let entry = ledger.enter(&inode(5), 1, &[]);
        entry.set_place(0, b"a name of some length");
        vec![entry]
    };
    let all = lives(before, |_, entries| {
        entries[0].set_place(3, &[b'x'; 255]);
        std::mem::forget(entries);
    });
    assert_eq!(all.len(), 2, "{all:#?}");
    let name = |name: &[u8], directory| format!("{:?}", PlaceRow { directory, name: name.to_vec() });
    assert!(all[0].contains(&name(b"a name of some length", 0)), "{}", all[0]);
    assert!(all[1].contains(&name(&[b'x'; 255], 3)), "{}", all[1]);
}

#[test]
fn an_inode_that_goes_is_gone_in_one_step_and_its_rows_are_used_again() {
    let before = |ledger: &Arc<MountLedger>| {
        let entry = ledger.enter(&inode(5), 1, &[]);
        entry.set_place(0, b"name");
        vec![entry]
    };
    assert_eq!(lives(before, |_, entries| drop(entries)).len(), 2);
    let ledger = MountLedger::create(memory(ROOM), ROOM).unwrap();
    for _ in 0..100 {
        let entries: Vec<_> = (1..=4).map(|node| ledger.enter(&inode(node), 1, &[])).collect();
        entries.iter().for_each(|entry| entry.set_place(0, b"name"));
        assert_eq!((ledger.missing(), ledger.counts().0), (0, 4));
    }
    assert_eq!((ledger.counts().0, ledger.places.count()), (0, 0));
}

#[test]
fn a_handle_is_there_whole_or_not_at_all() {
    let none = |_: &Arc<MountLedger>| Vec::new();
    let all = lives(none, |ledger, _| std::mem::forget(ledger.open_handle(&handle(3))));
    assert_eq!(all.len(), 2, "{all:#?}");
    assert!(all[1].contains(&format!("{:?}", handle(3))), "{}", all[1]);
}

#[test]
fn what_was_done_for_a_request_is_noted_whole_or_not_at_all() {
    let none = |_: &Arc<MountLedger>| Vec::new();
    let all = lives(none, |ledger, _| ledger.note_counted(7, 9));
    assert_eq!(all.len(), 2, "{all:#?}");
    let moved = ExchangeRow { inode: 5, birth: -3 };
    let all = lives(none, |ledger, _| ledger.note_exchange(7, moved));
    assert_eq!(all.len(), 2, "{all:#?}");
    let ledger = MountLedger::create(memory(ROOM), ROOM).unwrap();
    (1..=5000).for_each(|unique| ledger.note_counted(unique, unique + 1));
    let counted = ledger.counted();
    assert_eq!((counted.len(), counted.get(&5000), counted.get(&900)), (4096, Some(&5001), None));
}

#[test]
fn a_successor_refuses_while_anything_has_no_row_and_goes_on_after_that() {
    let words = memory(ROOM);
    let ledger = MountLedger::create(words, ROOM).unwrap();
    let mut entries: Vec<_> = (1..=6).map(|node| ledger.enter(&inode(node), 1, &[])).collect();
    assert_eq!(MountLedger::open(words).err(), Some(LedgerRefusal::Incomplete(2)));
    entries.truncate(5);
    assert_eq!(MountLedger::open(words).err(), Some(LedgerRefusal::Incomplete(1)));
    entries.truncate(4);
    assert_eq!(MountLedger::open(words).unwrap().counts().0, 4);
}

#[test]
fn numbers_do_not_come_twice_and_another_layout_is_refused() {
    let words = memory(ROOM);
    let ledger = MountLedger::create(words, ROOM).unwrap();
    let numbers = [HandleKind::File, HandleKind::File, HandleKind::Directory].map(|kind| ledger.next_number(kind));
    assert_eq!(numbers, [1, 2, 1]);
    drop(ledger);
    let ledger = MountLedger::open(words).unwrap();
    assert_eq!(ledger.next_number(HandleKind::File), 3);
    assert_eq!((ledger.agree(5), ledger.agree(5), ledger.agree(6)), (Ok(()), Ok(()), Err(LedgerRefusal::Agreement)));
    assert_eq!(MountLedger::open(memory(ROOM)).err(), Some(LedgerRefusal::Layout));
    assert!(matches!(MountLedger::open(&words[..100]).err(), Some(LedgerRefusal::Words { .. })));
}
