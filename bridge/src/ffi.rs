//! The border: slices in, buffers out, and the guard through which every entry runs.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::Once;

/// Errors inside the bridge are messages; the C++ side adds the file they belong to.
pub type Result<T> = std::result::Result<T, String>;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

pub fn set_last_error(message: &str) {
    let text = message.replace('\0', "\\0");
    LAST_ERROR.with(|slot| *slot.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// Runs `body`; an error or a panic becomes this thread's last error and gives `fallback`.
pub fn guard<T>(fallback: T, body: impl FnOnce() -> Result<T>) -> T {
    static QUIET: Once = Once::new();
    // A caught panic is reported through the last error, not on stderr. llguidance's own hook, which it
    // sets once, takes backtraces: locks and caches of the standard library that bounded work must not touch.
    QUIET.call_once(|| {
        let _ = llguidance::panic_utils::catch_unwind(|| Ok(()));
        set_hook(Box::new(|_| {}));
    });
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(message)) => message,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            format!("internal error: {}", text.unwrap_or("panic"))
        }
    };
    set_last_error(&message);
    fallback
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Slice {
    data: *const u8,
    size: usize,
}

impl Slice {
    pub const EMPTY: Slice = Slice { data: std::ptr::null(), size: 0 };

    pub fn of(bytes: &[u8]) -> Slice {
        Slice { data: bytes.as_ptr(), size: bytes.len() }
    }

    /// # Safety
    /// `data` must point to `size` readable bytes for as long as the result is used.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        unsafe { array(self.data, self.size) }
    }

    /// # Safety
    /// As `bytes`.
    pub unsafe fn text<'a>(self, what: &str) -> Result<&'a str> {
        std::str::from_utf8(unsafe { self.bytes() })
            .map_err(|e| format!("{what} is not UTF-8: {e}"))
    }
}

/// A C array, where null stands for none.
///
/// # Safety
/// `data` must be null or point to `count` values that outlive the result.
pub unsafe fn array<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if data.is_null() || count == 0 {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(data, count) }
}

/// A vector handed to the caller, who gives it back to the matching free function.
#[repr(C)]
pub struct Buffer<T> {
    data: *mut T,
    size: usize,
    capacity: usize,
}

impl<T> From<Vec<T>> for Buffer<T> {
    fn from(values: Vec<T>) -> Self {
        let mut values = std::mem::ManuallyDrop::new(values);
        Buffer { data: values.as_mut_ptr(), size: values.len(), capacity: values.capacity() }
    }
}

impl<T> Buffer<T> {
    unsafe fn free(self) {
        if !self.data.is_null() {
            drop(unsafe { Vec::from_raw_parts(self.data, self.size, self.capacity) });
        }
    }
}

/// Moves a value to the heap, where C++ holds it as an opaque handle.
pub fn handle<T>(value: Result<T>) -> Result<*mut T> {
    value.map(|v| Box::into_raw(Box::new(v)))
}

/// # Safety
/// `pointer` must be null or come from `handle`, and not be used again.
pub unsafe fn free_handle<T>(pointer: *mut T) {
    if !pointer.is_null() {
        guard((), || {
            drop(unsafe { Box::from_raw(pointer) });
            Ok(())
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn bridge_last_error() -> *const c_char {
    LAST_ERROR.with(|slot| slot.borrow().as_ptr())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_bytes_free(bytes: Buffer<u8>) {
    unsafe { bytes.free() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bridge_ids_free(ids: Buffer<u32>) {
    unsafe { ids.free() }
}
