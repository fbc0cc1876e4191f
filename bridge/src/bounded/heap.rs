//! The allocator of all Rust code here: the system's, with 16 bytes before each block. By them the blocks
//! of a bounded run form a list, so that what a run left when it was broken off can be given back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr;

use super::Run;

thread_local! {
    /// The bounded run that this thread works for, or null.
    static RUN: Cell<*const Run> = const { Cell::new(ptr::null()) };
}

/// From now on this thread's blocks belong to the run, which must outlive that; null: to nobody. Returns
/// whom they belonged to.
pub fn belong_to(run: *const Run) -> *const Run {
    RUN.replace(run)
}

/// Right before each block. A run's list is a ring through the head in its Blocks.
#[repr(C)]
struct Header {
    previous: *mut Header, // null: in no list
    next: *mut Header,
}

const UNLINKED: Header = Header { previous: ptr::null_mut(), next: ptr::null_mut() };
const HEADER: usize = size_of::<Header>();

/// The blocks that a run has asked for and not given back. At any time one thread uses it.
pub struct Blocks(UnsafeCell<Header>);

unsafe impl Send for Blocks {}
unsafe impl Sync for Blocks {}

impl Blocks {
    pub fn new() -> Self {
        Blocks(UnsafeCell::new(UNLINKED))
    }

    /// The blocks from now on belong to nobody.
    pub fn keep(&self) {
        unsafe { self.empty(|_| ()) }
    }

    /// Gives the blocks back to the system.
    ///
    /// # Safety
    /// Nothing may use any of them again.
    pub unsafe fn free(&self) {
        unsafe { self.empty(|block| libc::free(block.cast())) }
    }

    unsafe fn empty(&self, each: impl Fn(*mut Header)) {
        let head = self.0.get();
        unsafe {
            let mut block = (*head).next;
            while !block.is_null() && block != head {
                let next = (*block).next;
                *block = UNLINKED;
                each(block);
                block = next;
            }
            *head = UNLINKED;
        }
    }

    /// `block` must be in no list, and this must not move from now on.
    unsafe fn add(&self, block: *mut Header) {
        let head = self.0.get();
        unsafe {
            if (*head).next.is_null() {
                *head = Header { previous: head, next: head };
            }
            *block = Header { previous: head, next: (*head).next };
            (*(*head).next).previous = block;
            (*head).next = block;
        }
    }
}

unsafe fn unlink(block: *mut Header) {
    unsafe {
        let Header { previous, next } = *block;
        if !previous.is_null() {
            (*previous).next = next;
            (*next).previous = previous;
        }
    }
}

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// From the start of what the system gives to what is given out.
fn offset(layout: Layout) -> usize {
    HEADER.max(layout.align())
}

/// Of what the system gives; None beyond what a layout can be.
fn whole(layout: Layout, size: usize) -> Option<Layout> {
    let size = size.checked_add(offset(layout))?;
    Layout::from_size_align(size, layout.align().max(align_of::<Header>())).ok()
}

/// Counts what the thread's run takes, if it has one; does not return when it may not.
fn take(bytes: isize) {
    let run = RUN.get();
    if !run.is_null() {
        unsafe { &*run }.take(bytes);
    }
}

/// `whole` begins what the system gave, or is null.
unsafe fn given_out(whole: *mut u8, layout: Layout) -> *mut u8 {
    if whole.is_null() {
        return whole;
    }
    unsafe {
        let block = whole.add(offset(layout));
        link(block, offset(layout));
        block
    }
}

unsafe fn link(block: *mut u8, offset: usize) {
    let run = RUN.get();
    unsafe {
        let header = block.sub(HEADER).cast::<Header>();
        *header = UNLINKED;
        // free() knows no other offset. Blocks that are aligned to more are few, and lost with the run.
        if !run.is_null() && offset == HEADER {
            (*run).blocks.add(header);
        }
    }
}

unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        match whole(layout, layout.size()) {
            Some(all) => unsafe { given_out(System.alloc(all), layout) },
            None => ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        match whole(layout, layout.size()) {
            Some(all) => unsafe { given_out(System.alloc_zeroed(all), layout) },
            None => ptr::null_mut(),
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size as isize - layout.size() as isize);
        let (Some(old), Some(new)) = (whole(layout, layout.size()), whole(layout, size)) else {
            return ptr::null_mut();
        };
        let offset = offset(layout);
        unsafe {
            unlink(pointer.sub(HEADER).cast());
            let moved = System.realloc(pointer.sub(offset), old, new.size());
            if moved.is_null() {
                link(pointer, offset);
                return moved;
            }
            given_out(moved, layout)
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        take(-(layout.size() as isize));
        unsafe {
            unlink(pointer.sub(HEADER).cast());
            if let Some(all) = whole(layout, layout.size()) {
                System.dealloc(pointer.sub(offset(layout)), all);
            }
        }
    }
}
