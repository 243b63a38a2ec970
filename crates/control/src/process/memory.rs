//! What the daemon's allocator keeps.

// There is no other way to the allocator's settings.
#![allow(unsafe_code)]

/// From so many bytes on, memory that is freed goes back to the system at once.
const LARGE: i32 = 128 << 10;

/// Has the allocator give large buffers back. By itself the C library raises this bound to the largest buffer that was
/// freed. Reads of up to 1 MiB on dozens of threads then leave holes, and the daemon takes several times the memory
/// that it uses. The price: a large buffer beyond those that are kept costs a system call.
#[cfg(target_env = "gnu")]
pub(crate) fn give_large_buffers_back() {
    // SAFETY: it takes two numbers, and what it changes are later allocations. If it fails, nothing changes.
    let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE) };
}

/// Other C libraries do so by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn give_large_buffers_back() {}
