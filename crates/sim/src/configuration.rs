//! The contents that a file may have while changes are under way, and how they come about.
//!
//! A change is in a configuration wholly or not at all, a range of zeros of any length like a write.

use std::rc::Rc;

use crate::content::{Content, ContentChange};
use crate::origin::FileId;

/// Names a change that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct MutationId(pub(crate) u32);

/// A number of events since the last crash.
pub(crate) type Moment = usize;

/// A change that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Mutation {
    pub(crate) file: FileId,
    pub(crate) change: ContentChange,
    pub(crate) mtime: i64,
    pub(crate) durable: bool,
    pub(crate) loose: bool,
    pub(crate) acknowledged: Option<Moment>,
    pub(crate) failed: bool,
}

/// Something asked for, answered or found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Asked(MutationId),
    Acknowledged(MutationId),
    /// A failed change turned out not to be there.
    Absent(MutationId),
    /// A look found this content, after a change failed at the origin and may be there in part.
    Found(FileId, u32),
    /// Others put this there past the mount, for good.
    Replaced(FileId, u32),
}

/// A content that a file may have, with the changes under way that are in it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Configuration {
    pub(crate) content: Rc<Content>,
    pub(crate) applied: Vec<MutationId>,
}

/// One event, as it changes the configurations of its file.
pub(crate) fn step(
    configurations: &mut Vec<Configuration>,
    open: &mut Vec<MutationId>,
    event: Event,
    mutations: &[Mutation],
    findings: &[Rc<Content>],
) {
    match event {
        Event::Found(_, index) | Event::Replaced(_, index) => {
            *configurations = vec![Configuration { content: findings[index as usize].clone(), applied: Vec::new() }];
            open.clear();
        }
        Event::Asked(id) => {
            open.push(id);
            close_over(configurations, open, mutations);
        }
        Event::Acknowledged(id) => {
            configurations.retain(|configuration| configuration.applied.contains(&id));
            for configuration in configurations.iter_mut() {
                configuration.applied.retain(|applied| *applied != id);
            }
            open.retain(|other| *other != id);
            merge(configurations);
        }
        Event::Absent(id) => {
            configurations.retain(|configuration| !configuration.applied.contains(&id));
            open.retain(|other| *other != id);
        }
    }
}

/// Adds every configuration that results from another and one more change under way.
fn close_over(configurations: &mut Vec<Configuration>, open: &[MutationId], mutations: &[Mutation]) {
    let mut index = 0;
    while index < configurations.len() {
        for id in open {
            if configurations[index].applied.contains(id) {
                continue;
            }
            let mutation = &mutations[id.0 as usize];
            let mut content = (*configurations[index].content).clone();
            content.apply(&mutation.change, mutation.mtime);
            let mut applied = configurations[index].applied.clone();
            applied.push(*id);
            applied.sort_unstable();
            let new = Configuration { content: Rc::new(content), applied };
            if !configurations.iter().any(|old| old.applied == new.applied && same(&old.content, &new.content)) {
                configurations.push(new);
            }
        }
        index += 1;
    }
}

fn merge(configurations: &mut Vec<Configuration>) {
    let mut merged: Vec<Configuration> = Vec::with_capacity(configurations.len());
    for configuration in configurations.drain(..) {
        let known =
            |old: &Configuration| old.applied == configuration.applied && same(&old.content, &configuration.content);
        if !merged.iter().any(known) {
            merged.push(configuration);
        }
    }
    *configurations = merged;
}

/// Equal except for the time, which says less than the bytes.
fn same(a: &Rc<Content>, b: &Rc<Content>) -> bool {
    Rc::ptr_eq(a, b) || a.size == b.size && a.pieces(0, u64::MAX) == b.pieces(0, u64::MAX)
}
