//! Lists of idle headers.

use std::ptr;

use super::Header;

/// A list of idle headers, linked through themselves: pushing and popping allocate nothing.
///
/// Invariants: the list owns every header that it links, and each came out of a `Box`. The last
/// header's `next` is null.
pub(crate) struct List {
    head: *mut Header,
}

// SAFETY: a list owns its headers, and a header is plain data: its home is an address.
unsafe impl Send for List {}

impl List {
    pub(crate) const fn new() -> Self {
        Self {
            head: ptr::null_mut(),
        }
    }

    /// Returns the list that begins at `head`.
    ///
    /// # Safety
    ///
    /// `head` is null, or begins a null-terminated chain of headers that nothing else owns, each
    /// out of a `Box`.
    pub(crate) unsafe fn from_chain(head: *mut Header) -> Self {
        Self { head }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    #[inline]
    pub(crate) fn push(&mut self, mut header: Box<Header>) {
        header.watch.own();
        header.next = self.head;
        self.head = Box::into_raw(header);
    }

    /// Takes the header that was pushed last, if it `fits`.
    #[inline]
    pub(crate) fn pop_if(&mut self, fits: impl Fn(&Header) -> bool) -> Option<Box<Header>> {
        let head = self.head;
        // SAFETY: the head is null or a header that this list owns, out of a `Box`. `&mut self`
        // excludes all other access.
        unsafe {
            let header = head.as_ref()?;
            header.watch.own();
            if !fits(header) {
                return None;
            }
            self.head = header.next;
            Some(Box::from_raw(head))
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Box<Header>> {
        self.take_best(|_| Some(0))
    }

    /// Takes the header with the least `excess`. If several headers have the least excess, takes
    /// the first. If `excess` returns `None`, the header is not taken. An excess of 0 ends the
    /// search.
    pub(crate) fn take_best(
        &mut self,
        excess: impl Fn(&Header) -> Option<u64>,
    ) -> Option<Box<Header>> {
        let mut best: Option<(*mut *mut Header, u64)> = None;
        let mut link: *mut *mut Header = &raw mut self.head;
        // SAFETY: `link` is this list's head, or the `next` of a header that the list owns. The
        // target of `link` is null or a header that the list owns. `&mut self` excludes all other
        // access.
        unsafe {
            while let Some(header) = (*link).as_ref() {
                header.watch.own();
                match excess(header) {
                    Some(0) => {
                        best = Some((link, 0));
                        break;
                    }
                    Some(more) if best.is_none_or(|(_, least)| more < least) => {
                        best = Some((link, more));
                    }
                    _ => {}
                }
                link = &raw mut (**link).next;
            }
            let (link, _) = best?;
            let header = *link;
            *link = (*header).next;
            Some(Box::from_raw(header))
        }
    }

    /// Iterates over the headers, beginning with the header that was pushed last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Header> {
        // SAFETY: the list owns the headers it links, and is borrowed for as long as the references
        // are.
        let reference = |header: *mut Header| unsafe { header.as_ref() };
        std::iter::successors(reference(self.head), move |header| reference(header.next))
    }

    pub(crate) fn for_each_mut(&mut self, mut change: impl FnMut(&mut Header)) {
        let mut link = self.head;
        // SAFETY: the list owns the headers it links, and `&mut self` excludes all other access.
        while let Some(header) = unsafe { link.as_mut() } {
            link = header.next;
            change(header);
        }
    }

    /// Takes out the headers for which `matches` returns true.
    pub(crate) fn extract(&mut self, mut matches: impl FnMut(&Header) -> bool) -> Self {
        let (mut taken, mut kept) = (Self::new(), Self::new());
        while let Some(header) = self.pop() {
            let list = if matches(&header) {
                &mut taken
            } else {
                &mut kept
            };
            list.push(header);
        }
        while let Some(header) = kept.pop() {
            self.push(header); // Restores the order of the headers that stay.
        }
        taken
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        while let Some(header) = other.pop() {
            self.push(header);
        }
    }
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Box<Header>> for List {
    fn from(header: Box<Header>) -> Self {
        let mut list = Self::new();
        list.push(header);
        list
    }
}

impl Iterator for List {
    type Item = Box<Header>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pop()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.for_each(drop); // A recursive drop of a long chain would overflow the stack.
    }
}
