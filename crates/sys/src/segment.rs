//! A System V segment of shared memory, for showing that one of the host's cannot be found inside.

use rustix::io::Errno;

/// A segment of one page that this process made. Dropping it removes it.
#[derive(Debug)]
pub struct Segment {
    number: i32,
    key: i32,
}

impl Segment {
    /// Makes one under a key that is free.
    ///
    /// # Errors
    /// Fails where the key is taken or the kernel has no System V memory.
    pub fn create(key: i32) -> Result<Self, Errno> {
        const PAGE: usize = 4096;
        // SAFETY: `shmget` takes integers only.
        let answer = unsafe { libc::shmget(key, PAGE, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) };
        let number = crate::raw::check(answer.into())?;
        Ok(Segment { number: i32::try_from(number).unwrap_or(-1), key })
    }

    /// The key it was made under.
    #[must_use]
    pub fn key(&self) -> i32 {
        self.key
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: with `IPC_RMID` the kernel reads no buffer; the number is one that it gave to this process.
        unsafe { libc::shmctl(self.number, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}
