//! The texts and frames of a snapshot. Each is written once, and then referenced.

use std::collections::HashMap;

use super::pickle::{Memo, Pickle};
use crate::place::{Place, UNKNOWN, scope_name};
use crate::profile::{Frame, Profile};

/// The keys and constant texts of a snapshot. The text of a variant is its name in snake case.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameKey {
    Action,
    Addr,
    Size,
    Stream,
    TimeUs,
    Frames,
    Category,
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentMap,
    SegmentUnmap,
    Oom,
    Snapshot,
    DeviceFree,
    Name,
    Filename,
    Line,
    Unknown,
    Address,
    RequestedSize,
    State,
    ActiveAllocated,
    ActivePendingFree,
    Inactive,
    Device,
    TotalSize,
    AllocatedSize,
    ActiveSize,
    SegmentType,
    Large,
    IsExpandable,
    Blocks,
}

impl NameKey {
    const COUNT: usize = Self::Blocks as usize + 1;

    fn text(self) -> String {
        let mut text = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.push(letter.to_ascii_lowercase());
        }
        text
    }
}

/// The function, the file and the line of a frame.
type NamedLine<'p> = (&'p str, &'p str, u32);

pub(super) struct Names<'p> {
    profile: &'p Profile,
    keys: [Option<Memo>; NameKey::COUNT],
    texts: HashMap<&'p str, Memo>,
    frames: HashMap<NamedLine<'p>, Memo>,
    frame_lists: HashMap<Place, Memo>,
}

impl<'p> Names<'p> {
    pub(super) fn new(profile: &'p Profile) -> Self {
        Self {
            profile,
            keys: [None; NameKey::COUNT],
            texts: HashMap::new(),
            frames: HashMap::new(),
            frame_lists: HashMap::new(),
        }
    }

    pub(super) fn key(&mut self, pickle: &mut Pickle<'_>, key: NameKey) {
        let number = key as usize;
        if let Some(memo) = self.keys[number] {
            pickle.again(memo);
        } else {
            pickle.text(&key.text());
            self.keys[number] = Some(pickle.memoise());
        }
    }

    pub(super) fn text(&mut self, pickle: &mut Pickle<'_>, text: &'p str) {
        if let Some(&memo) = self.texts.get(text) {
            pickle.again(memo);
        } else {
            pickle.text(text);
            self.texts.insert(text, pickle.memoise());
        }
    }

    /// Writes the name of a scope, or `<uncached>` without a scope.
    pub(super) fn scope(&mut self, pickle: &mut Pickle<'_>, scope: Option<u32>) {
        self.text(pickle, scope_name(self.profile, scope));
    }

    /// Writes the frames of a place, from the innermost outwards. If the place is unknown, writes
    /// an empty list.
    pub(super) fn frames(&mut self, pickle: &mut Pickle<'_>, place: Place) {
        if let Some(&memo) = self.frame_lists.get(&place) {
            pickle.again(memo);
        } else {
            let mut list = pickle.begin_list();
            for frame in frames_of(self.profile, place) {
                pickle.item(&mut list);
                self.frame(pickle, frame);
            }
            pickle.end_list(list);
            self.frame_lists.insert(place, pickle.memoise());
        }
    }

    fn frame(&mut self, pickle: &mut Pickle<'_>, frame: NamedLine<'p>) {
        if let Some(&memo) = self.frames.get(&frame) {
            pickle.again(memo);
            return;
        }
        let (name, file, line) = frame;
        pickle.begin_dict();
        self.key(pickle, NameKey::Name);
        self.text(pickle, name);
        self.key(pickle, NameKey::Filename);
        self.text(pickle, file);
        self.key(pickle, NameKey::Line);
        pickle.number(line.into());
        pickle.end_dict();
        self.frames.insert(frame, pickle.memoise());
    }
}

fn frames_of(profile: &Profile, place: Place) -> Vec<NamedLine<'_>> {
    match place {
        Place::Stack(number) => {
            let stack = &profile.stacks[number as usize];
            stack.iter().map(named_line).collect()
        }
        Place::NOWHERE => Vec::new(),
        Place::Line { call_site, scope } => {
            let site = call_site.map(|number| &profile.call_sites[number as usize]);
            let (file, line) = site.map_or((UNKNOWN, 0), |site| (&*site.file, site.line));
            vec![(scope_name(profile, scope), file, line)]
        }
    }
}

fn named_line(frame: &Frame) -> NamedLine<'_> {
    (&frame.function, &frame.file, frame.line)
}
