//! Rules against simple oracles: text reads back as it was written, patterns match as a naive matcher says. The first
//! rule whose conditions all hold decides a request.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground gives way")]

use headpond_base::Compression;
use headpond_rules::{Action, Direction, Pattern, Pid, Process, Quota, Rule, RuleSet};
use proptest::prelude::*;

fn pattern() -> impl Strategy<Value = Pattern> {
    "[ab/*?\"\\\\ é]{1,8}".prop_map(|text| Pattern::new(&text).unwrap())
}

/// A control group's path begins with a slash, and a file's does not. With one at its end a file's is written in another
/// way.
fn path(letters: &'static str) -> impl Strategy<Value = Pattern> {
    letters.prop_map(|text| Pattern::new(&text).unwrap())
}

fn action() -> impl Strategy<Value = Action> {
    let quota = prop_oneof![(4096..u64::MAX).prop_map(Quota::Bytes), (1..=100_u8).prop_map(Quota::Percent)];
    prop_oneof![
        Just(Action::Cache),
        Just(Action::Bypass),
        Just(Action::ReadOnly),
        Just(Action::WriteThrough),
        quota.clone().prop_map(Action::Pin),
        quota.prop_map(Action::Share),
    ]
}

prop_compose! {
    fn rule()(
        pid in proptest::option::of((1..4_u32, 0..3_u64)),
        texts in (proptest::option::of(pattern()), proptest::option::of(pattern()), proptest::option::of(path("/[ab/*?\"\\\\ é]{0,7}")), proptest::option::of(path("[ab*?\"\\\\ é]([ab/*?\"\\\\ é]{0,6}[ab*?\"\\\\ é])?"))),
        user in proptest::option::of(0..3_u32),
        extension in proptest::option::of("[ab]{1,2}"),
        sizes in (proptest::option::of(0..4_u64), proptest::option::of(4..8_u64)),
        direction in proptest::option::of(prop_oneof![Just(Direction::Read), Just(Direction::Write)]),
        until in proptest::option::of(0..4_u64),
        action in action(),
        compression in proptest::option::of(prop_oneof![Just(Compression::Off), Just(Compression::Lz4), (1..=9_u8).prop_map(Compression::Zstd)]),
        copies in proptest::option::of(0..=2_u8),
    ) -> Rule {
        let (name, command, cgroup, path) = texts;
        Rule {
            pid: pid.map(|(number, born)| Pid { number, born }),
            name, command, user, cgroup, path, extension,
            min_size: sizes.0, max_size: sizes.1, direction, until, action, class: None,
            compression: compression.filter(|_| action != Action::Bypass),
            copies: copies.filter(|_| logs(action) && sizes == (None, None) && direction.is_none()),
        }
    }
}

prop_compose! {
    fn process()(number in 1..4_u32, born in 1..3_u64, name in "[ab]{0,3}", command in proptest::option::of("[ab/ ]{0,4}"), user in 0..3_u32, cgroup in "[ab/]{0,3}") -> Process {
        Process { pid: Pid { number, born }, name, command, user, cgroup }
    }
}

/// Whether writes go through the log, so that there are copies of them.
const fn logs(action: Action) -> bool {
    matches!(action, Action::Cache | Action::Pin(_) | Action::Share(_))
}

/// Straight from the definition, by recursion.
fn naive(pattern: &[u8], text: &[u8], path: bool) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', b'*', rest @ ..] => {
            let rest = rest.iter().position(|byte| *byte != b'*').map_or(&[][..], |at| &rest[at..]);
            (0..=text.len()).any(|at| naive(rest, &text[at..], path))
        }
        [b'*', rest @ ..] => {
            let end = text.iter().position(|byte| path && *byte == b'/').unwrap_or(text.len());
            (0..=end).any(|at| naive(rest, &text[at..], path))
        }
        [b'?', rest @ ..] => text.first().is_some_and(|byte| !path || *byte != b'/') && naive(rest, &text[1..], path),
        [letter, rest @ ..] => text.first() == Some(letter) && naive(rest, &text[1..], path),
    }
}

proptest! {
    #[test]
    fn what_a_rule_is_written_as_reads_back_as_the_same_rule(rule in rule()) {
        let text = rule.to_string();
        prop_assert_eq!(Rule::parse(&text), Ok(rule), "{}", text);
    }

    #[test]
    fn no_text_makes_reading_rules_fail_otherwise_than_by_saying_so(text in ".{0,80}") {
        if let Ok(set) = RuleSet::parse(&text) {
            let again = RuleSet::parse(&set.to_text()).unwrap();
            prop_assert_eq!(again.rules(), set.rules());
        }
    }

    #[test]
    fn patterns_match_as_their_definition_says(pattern in "[ab/*?]{1,7}", text in "[ab/]{0,7}") {
        let compiled = Pattern::new(&pattern).unwrap();
        prop_assert_eq!(compiled.matches(text.as_bytes()), naive(pattern.as_bytes(), text.as_bytes(), false));
        prop_assert_eq!(compiled.matches_path(text.as_bytes()), naive(pattern.as_bytes(), text.as_bytes(), true));
    }

    #[test]
    fn the_first_rule_all_of_whose_conditions_hold_decides(
        rules in proptest::collection::vec(rule(), 0..15),
        process in proptest::option::of(process()),
        path in "[ab/.]{0,5}",
        size in 0..9_u64,
        direction in prop_oneof![Just(Direction::Read), Just(Direction::Write)],
        now in 0..5_u64,
    ) {
        let set = RuleSet::new(rules).unwrap();
        let holds = |rule: &Rule| {
            rule.fits_process(process.as_ref()) && rule.fits_path(path.as_bytes()) && rule.fits_request(size, direction, now)
        };
        let expected = set.rules().iter().position(holds);
        let found = set.decide(set.for_path(path.as_bytes()), set.for_process(process.as_ref()), size, direction, now);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn classes_are_never_shared_and_stay_with_their_rule(
        rules in proptest::collection::vec(rule(), 1..14), extra in rule(), place in 0..14_usize, gone in 0..14_usize,
    ) {
        let classes = |set: &RuleSet| -> Vec<(String, u8)> {
            let shown = |rule: &Rule| (Rule { class: None, ..rule.clone() }.to_string(), rule.class);
            set.rules().iter().map(shown).filter_map(|(text, class)| Some((text, class?))).collect()
        };
        let set = RuleSet::new(rules).unwrap();
        let before = classes(&set);
        let more = set.with(extra, Some(place.min(set.rules().len()))).unwrap();
        let mut numbers: Vec<u8> = more.rules().iter().filter_map(|rule| rule.class).collect();
        numbers.sort_unstable();
        prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]) && numbers.iter().all(|class| (1..=15).contains(class)));
        let after = classes(&more);
        prop_assert!(before.iter().all(|kept| after.contains(kept)), "{:?} {:?}", before, after);
        let fewer = set.without(gone.min(set.rules().len() - 1)).unwrap();
        prop_assert!(classes(&fewer).iter().all(|kept| before.contains(kept)));
    }
}

#[test]
fn counters_go_with_their_rules_and_limits_are_told() {
    let mut set = RuleSet::default();
    for name in ["a", "b", "c"] {
        set = set.with(Rule::parse(&format!("name={name} action=bypass")).unwrap(), None).unwrap();
    }
    set.count(1, 4096);
    let set = set.with(Rule::parse("name=first action=cache").unwrap(), Some(0)).unwrap();
    assert_eq!((set.counted(2).requests, set.counted(2).bytes, set.counted(1).requests), (1, 4096, 0));
    let set = set.without(0).unwrap();
    assert_eq!((set.counted(0).requests, set.counted(1).requests), (0, 1));
    assert!(set.without(3).unwrap_err().to_string().contains("no rule 4"));
    let pins = "action=pin quota=1M\n".repeat(16);
    assert!(RuleSet::parse(&pins).unwrap_err().contains("15 rules with pin or share"));
    assert!(RuleSet::parse(&"action=cache\n".repeat(65)).unwrap_err().contains("64 rules"));
}

#[test]
fn everything_but_the_backup_and_nothing_but_the_database() {
    let process = |name: &str| Process {
        pid: Pid { number: 7, born: 1 },
        name: name.into(),
        command: Some(format!("/usr/bin/{name} --all-databases")),
        user: 999,
        cgroup: "/system.slice".into(),
    };
    let decide = |set: &RuleSet, name: &str| {
        let found =
            set.decide(set.for_path(b"db/t1.ibd"), set.for_process(Some(&process(name))), 4096, Direction::Read, 0);
        found.map_or(Action::Cache, |index| set.rules()[index].action)
    };
    let backup = RuleSet::parse("name=mysqldump action=bypass").unwrap();
    assert_eq!(["mysqldump", "mariadbd"].map(|name| decide(&backup, name)), [Action::Bypass, Action::Cache]);
    let database = RuleSet::parse("name=mariadbd action=cache\naction=bypass").unwrap();
    assert_eq!(["mysqldump", "mariadbd"].map(|name| decide(&database, name)), [Action::Bypass, Action::Cache]);
    let command = RuleSet::parse("command=\"* --all-databases\" action=read-only").unwrap();
    assert_eq!(decide(&command, "mysqldump"), Action::ReadOnly);
}
