//! Work that may be hostile, on a thread of its own with bounds on its stack, memory and time.
//!
//! Nothing can end a thread from outside. So one that asks for more memory than it may have sleeps for
//! ever at that point, and one that takes too long is left behind at the lowest priority, in either case
//! with the memory it holds, which is within the bound. The caller goes on at once; it counts the
//! threads left behind and starts no more when there are `MAX_STRAYS` of them. Work that is not done
//! soon goes on at a lower priority, so that it takes little from whatever else the machine does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use std::{fmt, ptr};

pub const MAX_STRAYS: usize = 4;
/// Work that takes longer is no longer urgent.
const SOON: Duration = Duration::from_millis(100);
const BUSY: u32 = 6;
/// How often is looked at what work has used so far.
const LOOK: Duration = Duration::from_millis(20);

pub struct Bounds {
    pub stack: usize,   // bytes; only what is touched becomes memory
    pub memory: usize,  // bytes on the heap
    pub time: Duration, // of the processor's; on a busy machine it may take BUSY times as long
}

#[derive(Debug)]
pub enum Stopped {
    Memory,
    Time,
    Busy,   // others kept the processor from it
    Strays, // whatever the work is
    NoThread(std::io::Error),
}

/// What came of work that ended.
pub struct Done<T> {
    pub result: T,
    pub kept: usize, // bytes on the heap that were not given back
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stopped::Memory => write!(f, "it needs more memory than it may have"),
            Stopped::Time => write!(f, "it takes more time than it may have"),
            Stopped::Busy => write!(f, "the machine is too busy for it; try again later"),
            Stopped::Strays => {
                write!(f, "{MAX_STRAYS} others before it had to be given up; ")?;
                write!(f, "try again later, or restart")
            }
            Stopped::NoThread(e) => write!(f, "not enough memory to run it ({e})"),
        }
    }
}

/// Counts the threads that were left behind and still exist.
#[derive(Default)]
pub struct Strays(AtomicUsize);

const RUNNING: u8 = 0;
const DONE: u8 = 1; // the result is there
const EXHAUSTED: u8 = 2; // the memory was not enough: the thread sleeps
const LEFT: u8 = 3; // by the caller

struct Run {
    state: AtomicU8,
    memory_left: AtomicIsize,
    thread: AtomicI32, // 0: it has not begun
    caller: Thread,
    strays: Arc<Strays>,
}

thread_local! {
    /// The bounded run that this thread belongs to, or null.
    static RUN: Cell<*const Run> = const { Cell::new(ptr::null()) };
}

/// Runs `work` within `bounds`. A panic in it goes on in the caller.
pub fn run<T: Send + 'static>(
    name: &str,
    bounds: &Bounds,
    strays: &Arc<Strays>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Done<T>, Stopped> {
    if strays.0.load(Ordering::Relaxed) >= MAX_STRAYS {
        return Err(Stopped::Strays);
    }
    let run = Arc::new(Run {
        state: AtomicU8::new(RUNNING),
        memory_left: AtomicIsize::new(bounds.memory.try_into().unwrap_or(isize::MAX)),
        thread: AtomicI32::new(0),
        caller: thread::current(),
        strays: Arc::clone(strays),
    });
    let result = Arc::new(Mutex::new(None));
    let began = Instant::now();
    let (its_run, its_result) = (Arc::clone(&run), Arc::clone(&result));
    let worker =
        thread::Builder::new().name(name.into()).stack_size(bounds.stack).spawn(move || {
            its_run.thread.store(priority::this_thread(), Ordering::Relaxed);
            RUN.set(Arc::as_ptr(&its_run));
            let outcome = catch_unwind(AssertUnwindSafe(work));
            RUN.set(ptr::null());
            if let Ok(mut slot) = its_result.lock() {
                *slot = Some(outcome);
            }
            its_run.finish();
        });
    let worker = worker.map_err(Stopped::NoThread)?;
    if !run.wait_until(began + SOON.min(bounds.time)) {
        priority::lower(run.thread.load(Ordering::Relaxed));
    }
    if let Some(stopped) = run.wait(bounds, began, || priority::time_used(&worker, began)) {
        priority::give_up(&worker);
        return Err(stopped);
    }
    let _ = worker.join(); // it is about to end; what it touched is then free to go
    let outcome = result.lock().ok().and_then(|mut slot| slot.take());
    match outcome.expect("a run that is done has a result") {
        Ok(result) => Ok(Done { result, kept: run.kept(bounds) }),
        Err(panic) => resume_unwind(panic),
    }
}

impl Run {
    fn finish(&self) {
        if self.state.swap(DONE, Ordering::AcqRel) == LEFT {
            self.strays.0.fetch_sub(1, Ordering::Relaxed);
        }
        self.caller.unpark();
    }

    fn kept(&self, bounds: &Bounds) -> usize {
        let left = self.memory_left.load(Ordering::Relaxed).max(0);
        bounds.memory.saturating_sub(left as usize)
    }

    /// False: it is still running then.
    fn wait_until(&self, time: Instant) -> bool {
        loop {
            let now = Instant::now();
            if self.state.load(Ordering::Acquire) != RUNNING {
                return true;
            }
            if now >= time {
                return false;
            }
            thread::park_timeout(time - now);
        }
    }

    /// Waits for the end; says why when there will be none.
    fn wait(
        &self,
        bounds: &Bounds,
        began: Instant,
        time_used: impl Fn() -> Duration,
    ) -> Option<Stopped> {
        loop {
            self.wait_until(Instant::now() + LOOK.min(bounds.time));
            match self.state.load(Ordering::Acquire) {
                DONE => return None,
                EXHAUSTED => {
                    self.strays.0.fetch_add(1, Ordering::Relaxed);
                    return Some(Stopped::Memory);
                }
                _ if time_used() >= bounds.time => {
                    if self.leave() {
                        return Some(Stopped::Time);
                    }
                }
                _ if began.elapsed() >= BUSY * bounds.time => {
                    if self.leave() {
                        return Some(Stopped::Busy);
                    }
                }
                _ => {}
            }
        }
    }

    /// False: it came to an end after all.
    fn leave(&self) -> bool {
        self.strays.0.fetch_add(1, Ordering::Relaxed);
        let order = Ordering::AcqRel;
        let left = self.state.compare_exchange(RUNNING, LEFT, order, Ordering::Acquire).is_ok();
        if !left {
            self.strays.0.fetch_sub(1, Ordering::Relaxed);
        }
        left
    }

    /// Takes memory from the allowance (negative: gives back); does not return when there is not enough.
    fn take(&self, bytes: isize) {
        let left = self.memory_left.load(Ordering::Relaxed).saturating_sub(bytes);
        self.memory_left.store(left, Ordering::Relaxed);
        // A panic that is being reported holds locks of the standard library.
        if left >= 0 || bytes <= 0 || thread::panicking() {
            return;
        }
        let order = Ordering::AcqRel;
        let _ = self.state.compare_exchange(RUNNING, EXHAUSTED, order, Ordering::Relaxed);
        self.caller.unpark();
        loop {
            thread::park();
        }
    }
}

#[cfg(target_os = "linux")]
mod priority {
    use std::os::unix::thread::JoinHandleExt;
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    /// Of the processor's, by a thread that has begun then.
    pub fn time_used<T>(worker: &JoinHandle<T>, _began: Instant) -> Duration {
        let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut clock = 0;
        unsafe {
            if libc::pthread_getcpuclockid(worker.as_pthread_t(), &mut clock) != 0
                || libc::clock_gettime(clock, &mut used) != 0
            {
                return Duration::ZERO; // it has just ended
            }
        }
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    }

    /// The calling thread, as lower() wants it.
    pub fn this_thread() -> i32 {
        unsafe { libc::gettid() }
    }

    /// A quarter of the share of others, where they want all there is.
    pub fn lower(thread: i32) {
        if thread != 0 {
            unsafe { libc::setpriority(libc::PRIO_PROCESS as _, thread as _, 6) };
        }
    }

    /// Runs when nothing else wants to.
    pub fn give_up<T>(worker: &JoinHandle<T>) {
        let parameters = libc::sched_param { sched_priority: 0 };
        let thread = worker.as_pthread_t();
        unsafe { libc::pthread_setschedparam(thread, libc::SCHED_IDLE, &parameters) };
    }
}

#[cfg(not(target_os = "linux"))]
mod priority {
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    pub fn time_used<T>(_worker: &JoinHandle<T>, began: Instant) -> Duration {
        began.elapsed()
    }
    pub fn this_thread() -> i32 {
        0
    }
    pub fn lower(_thread: i32) {}
    pub fn give_up<T>(_worker: &JoinHandle<T>) {}
}

/// The system's allocator, which counts what bounded runs use.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn take(bytes: isize) {
    let run = RUN.get();
    if !run.is_null() {
        // The closure that set the pointer keeps the run alive until it has reset it.
        unsafe { &*run }.take(bytes);
    }
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size as isize - layout.size() as isize);
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        take(-(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(milliseconds: u64) -> Bounds {
        Bounds { stack: 1 << 20, memory: 1 << 20, time: Duration::from_millis(milliseconds) }
    }

    #[test]
    fn gives_the_result_or_the_panic() {
        let strays = Arc::default();
        let done = run("t", &bounds(60_000), &strays, || vec![7u8; 1000]).unwrap();
        assert_eq!(done.result.len(), 1000);
        assert_eq!(done.kept, 1000);
        let panicking = || run("t", &bounds(60_000), &strays, || -> i32 { panic!("no") });
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
    }

    #[test]
    fn memory_given_back_counts_no_more() {
        let work = || (0..100).map(|_| vec![1u8; 500_000].len()).sum::<usize>();
        let done = run("t", &bounds(60_000), &Arc::default(), work).unwrap();
        assert_eq!((done.result, done.kept), (50_000_000, 0));
    }

    #[test]
    fn stops_what_works_too_long() {
        let strays: Arc<Strays> = Arc::default();
        let end = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let its_end = Arc::clone(&end);
        let busy = move || {
            while !its_end.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let stopped = run("t", &bounds(300), &strays, busy);
        assert!(matches!(stopped, Err(Stopped::Time | Stopped::Busy)));
        end.store(true, Ordering::Relaxed);
        while strays.0.load(Ordering::Relaxed) != 0 {
            thread::yield_now();
        }
    }

    #[test]
    fn stops_at_the_bounds_and_starts_no_more_then() {
        let strays = Arc::default();
        let greedy = || {
            let mut v = vec![1u8];
            while !v.is_empty() {
                v.extend_from_within(..);
            }
        };
        for _ in 1..MAX_STRAYS {
            assert!(matches!(run("t", &bounds(60_000), &strays, greedy), Err(Stopped::Memory)));
        }
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let slow = move || wait.recv().is_err();
        let stopped = run("t", &bounds(100), &strays, slow);
        assert!(matches!(stopped, Err(Stopped::Busy | Stopped::Time)));
        assert!(matches!(run("t", &bounds(10), &strays, || 1), Err(Stopped::Strays)));
        drop(release); // the slow one ends and counts no more
        while matches!(run("t", &bounds(60_000), &strays, || 1), Err(Stopped::Strays)) {
            thread::yield_now();
        }
        assert_eq!(strays.0.load(Ordering::Relaxed), MAX_STRAYS - 1);
    }
}
