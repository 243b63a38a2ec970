//! A peer's host is to go: its copies go elsewhere first, and nothing has fewer of them meanwhile.

use std::fs;

use crate::peers::{Peer, kept, lose_the_mount, mount, wait_for_copy_at};
use crate::pond::{Pond, SIZE, Said, pattern, run, wait_until, write_and_sync};
use crate::several_devices::{pool, pool_status};

fn peer_command(pond: &Pond, command: &str, store: &str, more: &[&str]) -> Said {
    let store = pond.at(store);
    let mut words = vec!["peer".as_ref(), command.as_ref(), "--store".as_ref(), store.as_os_str()];
    words.extend(more.iter().map(AsRef::<std::ffi::OsStr>::as_ref));
    run(words)
}

/// The state of the copy at a peer, as the owner shows it.
fn state_at(pond: &Pond, peer: &Peer) -> String {
    let status = pool_status(pond);
    let members = status["members"].as_array().unwrap();
    let at = members.iter().find(|member| member["flash"] == peer.address.as_str());
    at.map_or("", |member| member["state"].as_str().unwrap()).to_owned()
}

#[test]
fn a_drained_peers_copies_go_to_the_next_one_and_the_pool_is_never_without() {
    let mut pond = Pond::new();
    let (first, next) = (Peer::here(&pond), Peer::on_another(&pond));
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &first.address, "--peer", &next.address]);
    let file = pond.mnt().join("file");
    write_and_sync(&file, &pattern(1 << 20, 1));
    let text = peer_command(&pond, "drain", "store", &[]).ok().text.clone();
    assert!(text.contains("keeps no copy that counts"), "{text}");
    // The room there is free, and what is known of the pool stays.
    let gone = kept(&pond, "store");
    assert_eq!((&gone["removed"], &gone["bytes"]), (&true.into(), &0.into()), "{gone}");
    assert!(
        !fs::read_dir(pond.at("store")).unwrap().any(|entry| entry
            .unwrap()
            .path()
            .extension()
            .is_some_and(|kind| kind == "copy"))
    );
    wait_for_copy_at(&pond, &next);
    assert_eq!(kept(&pond, "store3")["counts"], true);
    assert!(!pond.log().contains("DEGRADED"), "{}", pond.log());
    assert_eq!(pool_status(&pond)["peers"], serde_json::json!([first.address, next.address]), "it stays named");
    // Both ways: the next one is drained, and the first one is not any more.
    let status = peer_command(&pond, "status", "store", &[]).ok().text.clone();
    assert!(status.contains("draining: ") && status.contains("let it go"), "{status}");
    peer_command(&pond, "drain", "store", &["--undo"]).ok();
    peer_command(&pond, "drain", "store3", &[]).ok();
    wait_for_copy_at(&pond, &first);
    assert_eq!(kept(&pond, "store3")["removed"], true);
    assert_eq!(fs::read(&file).unwrap(), pattern(1 << 20, 1));
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}

#[test]
fn a_drained_peer_whose_owner_has_no_other_keeps_the_copy_until_one_is_named() {
    let mut pond = Pond::new();
    let first = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &first.address]);
    write_and_sync(&pond.mnt().join("file"), b"on two hosts");
    let told = peer_command(&pond, "drain", "store", &["--no-wait"]).ok().text.clone();
    assert!(told.contains("its owner is connected, and lets go once another peer has a copy"), "{told}");
    wait_until("the owner hears it", || state_at(&pond, &first) == "DRAINING");
    let status = pool_status(&pond);
    assert_eq!(status["state"], "ONLINE", "{status}");
    assert!(status["actions"][0].as_str().unwrap().contains("no other peer is named"), "{status}");
    write_and_sync(&pond.mnt().join("file"), b"on two hosts, still");
    assert_eq!(kept(&pond, "store")["counts"], true);
    let next = Peer::on_another(&pond);
    pool(&pond, "add", &["--peer".as_ref(), next.address.as_ref()]).ok();
    wait_until("the drained one has let go", || kept(&pond, "store")["removed"] == true);
    wait_for_copy_at(&pond, &next);
    assert_eq!(pool_status(&pond)["actions"], serde_json::json!([]));
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}

#[test]
fn of_two_copies_the_drained_one_goes_to_the_third_host() {
    let mut pond = Pond::new();
    let peers = ["store", "store3", "store4"].map(|store| {
        Peer::keeping(&pond, store, &format!("unix:{}", pond.at(&format!("{store}.socket")).display()), &[])
    });
    let [first, next, third] = &peers;
    let named = ["--size", SIZE, "--copies", "2", "--peer", &first.address, "--peer", &next.address];
    let daemon = mount(&mut pond, &[&named[..], &["--peer", &third.address]].concat());
    write_and_sync(&pond.mnt().join("file"), b"on three hosts");
    wait_until("both have everything", || [first, next].iter().all(|peer| state_at(&pond, peer) == "ONLINE"));
    peer_command(&pond, "drain", "store", &[]).ok();
    wait_until("the third one has it", || state_at(&pond, third) == "ONLINE" && state_at(&pond, first).is_empty());
    assert_eq!(state_at(&pond, next), "ONLINE");
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}

#[test]
fn a_copy_whose_owner_does_not_come_back_is_removed_by_hand_and_an_owner_that_does_makes_another() {
    let mut pond = Pond::new();
    let peer = Peer::here(&pond);
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &peer.address]);
    write_and_sync(&pond.mnt().join("file"), b"on two hosts");
    let pool = kept(&pond, "store")["pool"].as_str().unwrap().to_owned();
    let remove = |more: &[&str]| peer_command(&pond, "remove", "store", &[&["--pool", &pool], more].concat());
    let connected = remove(&["--discard"]);
    assert!(connected.status != 0 && connected.text.contains("is connected"), "{}", connected.text);
    lose_the_mount(&mut pond, daemon);
    wait_until("its connection has ended", || kept(&pond, "store")["in_use"] == false);
    let left = peer_command(&pond, "drain", "store", &[]).ok().text.clone();
    assert!(left.contains("its owner is not connected") && left.contains(&format!("--pool {pool}")), "{left}");
    let counts = peer_command(&pond, "remove", "store", &["--pool", &pool]);
    assert!(counts.status != 0 && counts.text.contains("--discard"), "{}", counts.text);
    peer_command(&pond, "remove", "store", &["--pool", &pool, "--discard"]).ok();
    peer_command(&pond, "drain", "store", &["--undo"]).ok();
    // The owner comes back after all.
    let daemon = mount(&mut pond, &["--size", SIZE, "--peer", &peer.address]);
    assert_eq!(fs::read(pond.mnt().join("file")).unwrap(), b"on two hosts");
    assert_eq!(kept(&pond, "store")["counts"], true);
    pond.unmount(&[]).ok();
    pond.wait(daemon);
}
