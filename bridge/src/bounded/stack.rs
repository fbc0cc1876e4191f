//! Calls on a stack of their own that can be left from within: the caller goes on, and nothing on that
//! stack runs or is dropped any more.

#[cfg(target_os = "linux")]
pub use linux::{call, leave, of_thread};
#[cfg(not(target_os = "linux"))]
pub use other::{call, leave, of_thread};

pub const CAN_LEAVE: bool = cfg!(target_os = "linux");

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::Cell;
    use std::mem::MaybeUninit;
    use std::{io, ptr};

    const GUARD: usize = 64 << 10;

    /// The stack in bytes that a thread needs that is to call work with a stack of `_size`.
    pub fn of_thread(_size: usize) -> usize {
        256 << 10
    }

    struct Call<'a> {
        work: &'a mut dyn FnMut(),
        home: libc::ucontext_t,
        ended: bool,
    }

    thread_local! {
        /// The call that this thread is in, or null.
        static CALL: Cell<*mut Call<'static>> = const { Cell::new(ptr::null_mut()) };
    }

    /// Calls `work`, which must not panic, on a new stack of `size` bytes. False: it was left. One at a
    /// time on a thread.
    pub fn call(size: usize, work: &mut dyn FnMut()) -> io::Result<bool> {
        let stack = Stack::new(size)?;
        let home = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut call = Call { work, home, ended: false };
        let call = &raw mut call;
        unsafe {
            let mut start: libc::ucontext_t = MaybeUninit::zeroed().assume_init();
            if libc::getcontext(&mut start) != 0 {
                return Err(io::Error::last_os_error());
            }
            start.uc_stack.ss_sp = stack.memory.cast();
            start.uc_stack.ss_size = stack.size;
            start.uc_link = &raw mut (*call).home;
            libc::makecontext(&mut start, begin, 0);
            CALL.set(call.cast());
            let switched = libc::swapcontext(&raw mut (*call).home, &start) == 0;
            CALL.set(ptr::null_mut());
            if switched { Ok((*call).ended) } else { Err(io::Error::last_os_error()) }
        }
    }

    extern "C" fn begin() {
        let call = CALL.get();
        unsafe {
            ((*call).work)();
            (*call).ended = true;
        }
    }

    /// Goes on where call() was called; returns only where there is no call.
    pub fn leave() {
        let call = CALL.get();
        if !call.is_null() {
            unsafe { libc::setcontext(&raw const (*call).home) };
        }
    }

    struct Stack {
        memory: *mut u8,
        size: usize,
    }

    impl Stack {
        /// What lies before it cannot be touched.
        fn new(size: usize) -> io::Result<Stack> {
            let whole = size + GUARD;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            unsafe {
                let all = libc::mmap(ptr::null_mut(), whole, libc::PROT_NONE, flags, -1, 0);
                if all == libc::MAP_FAILED {
                    return Err(io::Error::last_os_error());
                }
                let stack = Stack { memory: all.cast::<u8>().add(GUARD), size };
                let access = libc::PROT_READ | libc::PROT_WRITE;
                if libc::mprotect(stack.memory.cast(), size, access) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(stack)
            }
        }
    }

    impl Drop for Stack {
        fn drop(&mut self) {
            unsafe { libc::munmap(self.memory.sub(GUARD).cast(), self.size + GUARD) };
        }
    }
}

/// Here nothing can be left.
#[cfg(not(target_os = "linux"))]
mod other {
    pub fn of_thread(size: usize) -> usize {
        size
    }

    pub fn call(_size: usize, work: &mut dyn FnMut()) -> std::io::Result<bool> {
        work();
        Ok(true)
    }

    pub fn leave() {}
}
