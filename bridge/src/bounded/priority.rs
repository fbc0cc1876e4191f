//! How much of the processor a run's thread has used, and how much it is to get.

#[cfg(target_os = "linux")]
pub use linux::{give_up, lower, this_thread, time_used};
#[cfg(not(target_os = "linux"))]
pub use other::{give_up, lower, this_thread, time_used};

#[cfg(target_os = "linux")]
mod linux {
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
mod other {
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
