//! Each finding, from made-up facts.

use super::*;

/// What a finding says: met or not, and parts of its words.
fn says(found: &HostFinding, met: Option<bool>, parts: &[&str]) {
    assert_eq!(found.met, met, "{found:?}");
    let text = found.to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    assert!(met != Some(false) || found.todo.is_some(), "trouble without a way out: {text}");
    assert!(met != Some(true) || found.todo.is_none(), "{text}");
}

fn disk(name: &str, write_back: Option<bool>) -> Disk {
    Disk {
        name: name.to_owned(),
        write_back,
        fua: Some(true),
        rotational: Some(false),
        discards: Some(true),
        node: None,
    }
}

fn flash_on(path: &str, disks: &[Disk]) -> FlashFacts {
    FlashFacts {
        path: path.into(),
        disks: disks.to_vec(),
        bytes: Some(100 << 30),
        is_device: false,
        reserve_bytes: None,
    }
}

fn at(flashes: Vec<FlashFacts>) -> PlaceFacts {
    PlaceFacts {
        origin: "/slow".into(),
        origin_disks: vec![],
        space: Some(SpaceKind::Keeps),
        flashes,
        available_bytes: Some(8 << 30),
        nodes: vec![],
    }
}

#[test]
fn fuse_is_missing_refused_or_there() {
    says(&fuse(Err(ErrorKind::NotFound), true, true), Some(false), &["no /dev/fuse", "modprobe fuse", "--device"]);
    says(&fuse(Err(ErrorKind::PermissionDenied), true, true), Some(false), &["may not open", "chmod 666"]);
    says(&fuse(Err(ErrorKind::Other), true, true), Some(false), &["does not open"]);
    says(&fuse(Ok(()), false, false), Some(false), &["fusermount3", "fuse3"]);
    says(&fuse(Ok(()), false, true), Some(true), &["opens"]);
    says(&fuse(Ok(()), true, false), Some(true), &["opens"]);
}

#[test]
fn a_kernel_before_6_9_costs_copies() {
    for old in ["5.15.0-91-generic", "6.8.12", "6.1"] {
        says(&kernel(Some(old)), Some(false), &[old, "two copies", "6.9"]);
    }
    for new in ["6.9.0", "6.18.44-x", "6.10-rc1", "7.0.1"] {
        says(&kernel(Some(new)), Some(true), &[new, "sends requests again"]);
    }
    says(&kernel(Some("strange")), None, &[]);
    says(&kernel(None), None, &[]);
}

#[test]
fn requests_shorter_than_a_mebibyte_are_told() {
    says(&max_pages(Some(32)), Some(false), &["128 KiB", "max_pages_limit=257"]);
    [None, Some(256), Some(1024)].into_iter().for_each(|limit| says(&max_pages(limit), Some(true), &["1 MiB"]));
}

#[test]
fn a_clock_that_costs_a_call_is_told() {
    ["tsc", "kvm-clock"].into_iter().for_each(|quick| says(&clock(Some(quick)), Some(true), &[quick]));
    ["hpet", "acpi_pm", "xen"]
        .into_iter()
        .for_each(|slow| says(&clock(Some(slow)), Some(false), &[slow, "system call"]));
    says(&clock(None), None, &[]);
}

#[test]
fn few_descriptors_are_told() {
    says(&descriptors(Some(256)), Some(false), &["256", "LimitNOFILE="]);
    says(&descriptors(Some(1024)), Some(true), &["1024"]);
    says(&descriptors(Some(u64::MAX)), Some(true), &["without limit"]);
    says(&descriptors(None), None, &[]);
}

#[test]
fn flash_that_loses_its_cache_or_turns_is_told() {
    let one = |disk: Disk| flash(&flash_on("/nvme/pond", &[disk]));
    says(&one(disk("nvme0n1", Some(false))), Some(true), &["nvme0n1", "survives"]);
    says(&one(disk("sdb", Some(true))), Some(false), &["sdb has a volatile write cache:", "power-loss protection"]);
    let old = Disk { fua: Some(false), ..disk("sdb", Some(true)) };
    says(&one(old), Some(false), &["takes no single write past it"]);
    let turning = Disk { rotational: Some(true), ..disk("sdc", Some(false)) };
    says(&one(turning), Some(false), &["sdc", "turning"]);
    says(&one(disk("sdd", None)), None, &["sdd"]);
    says(&flash(&flash_on("/nvme/pond", &[])), None, &["no disk"]);
    // One of two is enough.
    let two = flash(&flash_on("/nvme/pond", &[disk("sda", Some(false)), disk("sdb", Some(true))]));
    says(&two, Some(false), &["sdb has"]);
}

#[test]
fn one_disk_for_both_is_told() {
    let (a, b) = (disk("sda", Some(false)), disk("sdb", Some(false)));
    let on = |disks: &[Disk]| vec![flash_on("/nvme/pond", disks)];
    let (on_a, on_b) = (std::slice::from_ref(&a), std::slice::from_ref(&b));
    says(&disks(&[a.clone(), b.clone()], &on(on_b)), Some(false), &["origin and flash", "sdb", "another disk"]);
    says(&disks(on_a, &on(on_b)), Some(true), &["none"]);
    says(&disks(on_a, &on(&[])), None, &[]);
    says(&disks(&[], &on(on_b)), None, &[]);
    // Of several, the one that lies there is named, also beside one of which nothing is known.
    let several = [flash_on("/nvme/a", &[]), flash_on("/nvme/b", on_b)];
    says(&disks(on_b, &several), Some(false), &["origin and /nvme/b", "sdb"]);
    says(&disks(on_a, &several), None, &[]);
}

#[test]
fn a_card_that_may_have_no_room_to_work_in_is_told_and_what_nobody_can_see_is_said_so() {
    let takes = disk("sda", Some(false));
    let refuses = Disk { discards: Some(false), ..takes.clone() };
    let on = |disk: &Disk| flash_on("/nvme/pond", std::slice::from_ref(disk));
    says(&spare(&on(&takes)), Some(true), &["sda takes discards", "fstrim"]);
    says(&spare(&FlashFacts { is_device: true, ..on(&takes) }), Some(true), &["headpond says"]);
    says(&spare(&on(&refuses)), None, &["sda takes no discards", "does not tell", "--reserve 20%", "pool shrink"]);
    says(&spare(&FlashFacts { reserve_bytes: Some(0), ..on(&refuses) }), None, &["--reserve"]);
    says(&spare(&FlashFacts { reserve_bytes: Some(20 << 30), ..on(&refuses) }), Some(true), &["20 GiB", "unwritten"]);
    says(&spare(&on(&Disk { rotational: Some(true), ..refuses })), Some(true), &["turning"]);
    says(&spare(&on(&Disk { discards: None, ..takes })), None, &["does not tell whether"]);
    says(&spare(&flash_on("/nvme/pond", &[])), None, &["does not tell whether"]);
}

#[test]
fn two_copies_on_one_disk_are_told() {
    let (a, b, c) = (disk("sda", Some(false)), disk("sdb", Some(false)), disk("sdc", Some(false)));
    let three = |second: &[Disk]| {
        [flash_on("/1", &[a.clone(), b.clone()]), flash_on("/2", second), flash_on("/3", std::slice::from_ref(&c))]
    };
    says(&copies(&three(&[disk("sdd", None)])), Some(true), &["disks of its own"]);
    says(&copies(&three(std::slice::from_ref(&b))), Some(false), &["/1 and /2", "sdb", "both copies", "pool replace"]);
    says(&copies(&three(std::slice::from_ref(&c))), Some(false), &["/2 and /3", "sdc"]);
    says(&copies(&three(&[])), None, &["look whether"]);
}

#[test]
fn an_origin_that_keeps_no_space_is_told() {
    let of = |kind| space(&PlaceFacts { space: kind, ..at(vec![]) });
    says(&of(Some(SpaceKind::Keeps)), Some(true), &["/slow", "keeps space"]);
    says(&of(Some(SpaceKind::KeepsNone)), Some(false), &["cannot keep space", "sixteenth"]);
    says(&of(Some(SpaceKind::Unsure)), None, &["may not keep", "sixteenth"]);
    says(&of(None), None, &["does not open"]);
}

#[test]
fn a_map_that_does_not_fit_is_told_with_the_size_that_does() {
    says(&memory(Some(1000 << 30), Some(4 << 30)), Some(true), &["3 GiB", "4 GiB are available"]);
    says(&memory(Some(1000 << 30), Some(2 << 30)), Some(false), &["3 GiB", "--size", "333.3 GiB"]);
    says(&memory(None, Some(1)), None, &["0.3 %"]);
    says(&memory(Some(1), None), None, &[]);
}

#[test]
fn each_fact_has_its_finding() {
    let facts = HostFacts {
        fuse: Ok(()),
        may_mount: true,
        has_helper: true,
        release: Some("6.12.0".into()),
        max_pages: Some(256),
        clock: Some("tsc".into()),
        descriptors: Some(4096),
    };
    let names = |found: Vec<HostFinding>| found.iter().map(|one| one.name).collect::<Vec<_>>();
    assert_eq!(names(host(&facts)), ["FUSE", "kernel", "request size", "clock", "descriptors"]);
    let (one, other) = (flash_on("/1", &[]), flash_on("/2", &[]));
    assert_eq!(names(places(&at(vec![one.clone()]))), ["flash", "spare", "disks", "origin", "memory"]);
    let several = places(&at(vec![one, other]));
    assert!(several.iter().any(|one| one.what.contains("614.3 MiB")), "the map of both: {several:?}");
    assert_eq!(names(several), ["flash", "spare", "flash", "spare", "disks", "copies", "origin", "memory"]);
}

#[test]
fn with_several_memory_nodes_the_processors_near_the_flash_are_told() {
    let nodes: Vec<MemoryNode> = [(0, "0-7"), (1, "8-15")]
        .map(|(number, processors)| MemoryNode { number, processors: processors.to_owned() })
        .to_vec();
    let near = |disks: &[(&str, Option<u32>)]| {
        let disks: Vec<Disk> =
            disks.iter().map(|(name, node)| Disk { node: *node, ..disk(name, Some(false)) }).collect();
        node(&[flash_on("/nvme/pond", &disks)], &nodes)
    };
    says(&near(&[("nvme0n1", Some(1)), ("nvme1n1", Some(1))]), None, &["node 1 of 2", "--processors 8-15"]);
    says(&near(&[("nvme0n1", Some(0)), ("nvme1n1", Some(1))]), Some(true), &["spread"]);
    says(&near(&[("nvme0n1", Some(5))]), None, &["no processors"]);
    [&[("vda", None)][..], &[("vda", None), ("nvme0n1", Some(1))], &[]]
        .into_iter()
        .for_each(|disks| says(&near(disks), None, &["does not tell"]));
    let names = |facts: &PlaceFacts| places(facts).into_iter().map(|found| found.name).collect::<Vec<_>>();
    let one = at(vec![flash_on("/nvme/pond", &[])]);
    assert!(!names(&one).contains(&"node"), "with one node there is nothing to choose");
    assert!(names(&PlaceFacts { nodes, ..one }).contains(&"node"));
}
