//! Work that may be hostile, on a thread of its own with bounds on its stack, memory and time.
//!
//! Nothing can end a thread from outside, but whoever asks for memory passes through the allocator
//! (heap.rs), and from there the work can be left for good (stack.rs): when it has used up its memory,
//! or when the caller has waited too long. What it had asked for is then given back. Work that takes too
//! long and asks for no memory is a stray: it goes on at the lowest priority, and while there are
//! `MAX_STRAYS` of them no more is started. Work that is not done soon goes on at a lower priority, so
//! that it takes little from whatever else the machine does.

mod heap;
mod priority;
mod stack;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI32, AtomicIsize, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use std::{fmt, io, ptr};

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
    NoThread(io::Error),
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

/// The work that has been given up and is not gone.
#[derive(Default)]
pub struct Strays(Mutex<Vec<Stray>>);

struct Stray {
    worker: JoinHandle<()>,
    run: Arc<Run>,
}

/// Of those whose owner is gone.
static ORPHANS: Strays = Strays(Mutex::new(Vec::new()));

impl Drop for Strays {
    fn drop(&mut self) {
        ORPHANS.lock().append(&mut self.lock());
    }
}

impl Strays {
    fn lock(&self) -> MutexGuard<'_, Vec<Stray>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are; sees off those that have ended.
    fn count(&self) -> usize {
        let mut strays = self.lock();
        for gone in strays.extract_if(.., |stray| stray.worker.is_finished()) {
            gone.run.see_off(gone.worker);
        }
        strays.len()
    }
}

/// For what work shares with others: work that was left still counts as a user of it, so that it would
/// be lost rather than freed. Now it lives as long as the process.
pub fn keep_for_ever(shared: Arc<dyn Any + Send + Sync>) {
    static KEPT: Mutex<Vec<Arc<dyn Any + Send + Sync>>> = Mutex::new(Vec::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if !kept.iter().any(|each| Arc::ptr_eq(each, &shared)) {
        kept.push(shared);
    }
}

/// For a little of the work that holds what must not be lost, like an open file: what it asks for is not
/// counted, and it is not left there.
pub fn apart<T>(little: impl FnOnce() -> T) -> T {
    let run = heap::belong_to(ptr::null());
    let value = little();
    heap::belong_to(run);
    value
}

const RUNNING: u8 = 0;
const DONE: u8 = 1; // the result is there
const EXHAUSTED: u8 = 2; // the memory was not enough
const LEFT: u8 = 3; // by the caller

struct Run {
    state: AtomicU8,
    memory_left: AtomicIsize,
    blocks: heap::Blocks, // of the worker; once it has ended, of who joined it
    thread: AtomicI32,    // 0: it has not begun
    caller: Thread,
}

/// Runs `work` within `bounds`. A panic in it goes on in the caller.
///
/// When the work is left, the memory that it asked for is given back. So nothing but its result may
/// hold such memory: what is made once for all, when it is first needed, must exist before.
pub fn run<T: Send + 'static>(
    name: &str,
    bounds: &Bounds,
    strays: &Strays,
    work: impl Fn() -> T + Send + 'static,
) -> Result<Done<T>, Stopped> {
    ORPHANS.count();
    if strays.count() >= MAX_STRAYS {
        return Err(Stopped::Strays);
    }
    let run = Arc::new(Run::new(bounds));
    let result = Arc::new(Mutex::new(None));
    let began = Instant::now();
    let (its_run, its_result, size) = (Arc::clone(&run), Arc::clone(&result), bounds.stack);
    let worker = thread::Builder::new().name(name.into()).stack_size(stack::of_thread(size)).spawn(
        move || {
            let outcome = its_run.execute(size, &work);
            let state = if outcome.is_some() { DONE } else { EXHAUSTED };
            if let Ok(mut slot) = its_result.lock() {
                *slot = outcome;
            }
            its_run.finish(state);
        },
    );
    let worker = worker.map_err(Stopped::NoThread)?;
    if !run.wait_until(began + SOON.min(bounds.time)) {
        priority::lower(run.thread.load(Ordering::Relaxed));
    }
    match run.wait(bounds, began, || priority::time_used(&worker, began)) {
        None => _ = worker.join(), // it is about to end; what it touched is then free to go
        Some(Stopped::Memory) if stack::CAN_LEAVE => {
            run.see_off(worker);
            return Err(Stopped::Memory);
        }
        Some(stopped) => {
            priority::give_up(&worker);
            strays.lock().push(Stray { worker, run });
            return Err(stopped);
        }
    }
    let outcome = result.lock().ok().and_then(|mut slot| slot.take());
    match outcome.expect("a run that is done has a result") {
        Ok(Ok(result)) => Ok(Done { result, kept: run.kept(bounds) }),
        Ok(Err(panic)) => resume_unwind(panic),
        Err(e) => Err(Stopped::NoThread(e)),
    }
}

impl Run {
    fn new(bounds: &Bounds) -> Run {
        Run {
            state: AtomicU8::new(RUNNING),
            memory_left: AtomicIsize::new(bounds.memory.try_into().unwrap_or(isize::MAX)),
            blocks: heap::Blocks::new(),
            thread: AtomicI32::new(0),
            caller: thread::current(),
        }
    }

    /// On the worker. None: the work was left.
    fn execute<T>(
        &self,
        stack: usize,
        work: &impl Fn() -> T,
    ) -> Option<io::Result<thread::Result<T>>> {
        self.thread.store(priority::this_thread(), Ordering::Relaxed);
        let mut outcome = None;
        let ended = stack::call(stack, &mut || {
            heap::belong_to(self);
            outcome = Some(catch_unwind(AssertUnwindSafe(work)));
        });
        heap::belong_to(ptr::null());
        match ended {
            Ok(true) => {
                self.blocks.keep();
                outcome.map(Ok)
            }
            Ok(false) => None,
            Err(e) => Some(Err(e)),
        }
    }

    fn finish(&self, state: u8) {
        let order = Ordering::AcqRel;
        let _ = self.state.compare_exchange(RUNNING, state, order, Ordering::Relaxed);
        self.caller.unpark();
    }

    /// Of a worker that has ended or is about to, and whose result nobody waits for.
    fn see_off(&self, worker: JoinHandle<()>) {
        let _ = worker.join(); // runs the destructors of its thread-local variables
        unsafe { self.blocks.free() };
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
                EXHAUSTED => return Some(Stopped::Memory),
                _ if time_used() >= bounds.time && self.leave() => return Some(Stopped::Time),
                _ if began.elapsed() >= BUSY * bounds.time && self.leave() => {
                    return Some(Stopped::Busy);
                }
                _ => {}
            }
        }
    }

    /// False: it came to an end after all.
    fn leave(&self) -> bool {
        let order = Ordering::AcqRel;
        self.state.compare_exchange(RUNNING, LEFT, order, Ordering::Acquire).is_ok()
    }

    /// Takes memory from the allowance (negative: gives back). Leaves the work when there is not enough
    /// or nobody waits for it any more.
    fn take(&self, bytes: isize) {
        let left = self.memory_left.load(Ordering::Relaxed).saturating_sub(bytes);
        self.memory_left.store(left, Ordering::Relaxed);
        let is_wanted = left >= 0 && self.state.load(Ordering::Relaxed) != LEFT;
        // A panic that is being reported holds locks of the standard library.
        if bytes <= 0 || is_wanted || thread::panicking() {
            return;
        }
        stack::leave();
        if left < 0 {
            self.finish(EXHAUSTED);
            loop {
                thread::park();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn bounds(milliseconds: u64) -> Bounds {
        Bounds { stack: 1 << 20, memory: 1 << 20, time: Duration::from_millis(milliseconds) }
    }

    /// Nothing of it is given back before the end.
    fn greedy() {
        let mut all = Vec::new();
        loop {
            all.push(Box::new([1u8; 500]));
        }
    }

    #[test]
    fn gives_the_result_or_the_panic() {
        let strays = Strays::default();
        let done = run("t", &bounds(60_000), &strays, || vec![7u8; 1000]).unwrap();
        assert_eq!(done.result.len(), 1000);
        assert_eq!(done.kept, 1000);
        let panicking = || run("t", &bounds(60_000), &strays, || -> i32 { panic!("no") });
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
    }

    #[test]
    fn memory_given_back_counts_no_more() {
        let work = || (0..100).map(|_| vec![1u8; 500_000].len()).sum::<usize>();
        let done = run("t", &bounds(60_000), &Strays::default(), work).unwrap();
        assert_eq!((done.result, done.kept), (50_000_000, 0));
    }

    #[test]
    fn results_outlive_the_run() {
        let work = || (0..1000).map(|i| vec![i; i]).collect::<Vec<_>>();
        let large = Bounds { memory: 64 << 20, ..bounds(60_000) };
        let mut lists = run("t", &large, &Strays::default(), work).unwrap().result;
        for (i, list) in lists.iter_mut().enumerate() {
            list.extend([i; 3]);
            assert_eq!(*list, vec![i; i + 3]);
        }
    }

    #[test]
    fn blocks_of_any_alignment_keep_what_is_in_them() {
        use std::alloc::{Layout, alloc_zeroed, dealloc, realloc};
        let work = || unsafe {
            for align in [1, 2, 16, 32, 64, 4096] {
                let layout = Layout::from_size_align(100, align).unwrap();
                let block = alloc_zeroed(layout);
                block.add(99).write(7);
                let block = realloc(block, layout, 100_000);
                assert_eq!((block as usize % align, *block, *block.add(99)), (0, 0, 7));
                dealloc(block, Layout::from_size_align(100_000, align).unwrap());
            }
        };
        work();
        assert_eq!(run("t", &bounds(60_000), &Strays::default(), work).unwrap().kept, 0);
    }

    fn wait_until_gone(strays: &Strays) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while strays.count() != 0 {
            assert!(Instant::now() < deadline, "{} strays", strays.count());
            thread::yield_now();
        }
    }

    #[cfg(target_os = "linux")]
    fn resident_bytes() -> usize {
        let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
        sizes.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn work_without_memory_is_left_and_leaves_nothing() {
        let strays = Strays::default();
        let large = Bounds { memory: 64 << 20, ..bounds(60_000) };
        let before = resident_bytes();
        for _ in 0..64 {
            assert!(matches!(run("t", &large, &strays, greedy), Err(Stopped::Memory)));
        }
        assert_eq!(strays.count(), 0);
        assert!(resident_bytes() < before + (2 << 30)); // of 4 GiB; tests beside this one take some, too
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn work_that_takes_too_long_is_left_where_it_asks_for_memory() {
        let strays = Strays::default();
        let patient = || while *std::hint::black_box(Box::new(1)) != 2 {};
        for _ in 0..2 * MAX_STRAYS {
            let stopped = run("t", &bounds(50), &strays, patient);
            assert!(matches!(stopped, Err(Stopped::Time | Stopped::Busy)));
            wait_until_gone(&strays);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn work_that_does_not_get_the_processor_is_told_so() {
        let strays = Strays::default();
        let asleep = || thread::sleep(Duration::from_secs(1));
        assert!(matches!(run("t", &bounds(50), &strays, asleep), Err(Stopped::Busy)));
    }

    #[test]
    fn starts_no_more_beside_too_many_strays() {
        let strays = Strays::default();
        let end = Arc::new(AtomicBool::new(false));
        for _ in 0..MAX_STRAYS {
            let its_end = Arc::clone(&end);
            let busy = move || {
                while !its_end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let stopped = run("t", &bounds(100), &strays, busy);
            assert!(matches!(stopped, Err(Stopped::Time | Stopped::Busy)));
        }
        assert!(matches!(run("t", &bounds(60_000), &strays, || 1), Err(Stopped::Strays)));
        end.store(true, Ordering::Relaxed);
        wait_until_gone(&strays);
        assert_eq!(run("t", &bounds(60_000), &strays, || 1).unwrap().result, 1);
    }
}
