//! Mapped files whose pages may turn out not to be readable: the file was cut by another program, or the disk fails.
//!
//! The system tells of such a page by the signal SIGBUS, which ends a process that does not handle it. The handler here puts a page of zeros
//! where the unreadable one is and marks the map, so that the reader goes on, asks [`MappedFile::is_readable`] when it is done, and drops
//! what it read.

#![allow(
    unsafe_code,
    reason = "mapping, and handling the signal of a page that cannot be read, have no safe interface"
)]

use std::fs;
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::MappedFile;

/// A read-only map of a file, or of pieces of one, that are never written again.
pub(crate) struct GuardedMap {
    memory: Memory,
    region: &'static Region,
}

/// The mapped addresses.
enum Memory {
    Whole(memmap2::Mmap),
    Pieces(PieceMemory),
}

/// Pieces of a file one after the other. They are given back when this is dropped.
struct PieceMemory {
    start: *mut libc::c_void,
    /// Mapped bytes, in whole pages.
    mapped_bytes: usize,
    /// Bytes of the file.
    bytes: usize,
}

// SAFETY: the memory is only read, and is not tied to a thread.
unsafe impl Send for PieceMemory {}
// SAFETY: as above.
unsafe impl Sync for PieceMemory {}

impl PieceMemory {
    /// `None` where pages of the system do not fit to the pieces.
    fn map(file: &fs::File, pieces: &[(u64, u64)]) -> io::Result<Option<Self>> {
        let page = PAGE_BYTES.load(Ordering::Acquire) as u64;
        let bytes = pieces.iter().map(|(_, bytes)| *bytes).sum::<u64>();
        let is_whole = |at: u64| at.is_multiple_of(page);
        let (inner, last) = pieces.split_at(pieces.len().saturating_sub(1));
        let fits = inner.iter().all(|(offset, bytes)| is_whole(*offset) && is_whole(*bytes));
        if bytes == 0 || !fits || !last.iter().all(|(offset, _)| is_whole(*offset)) {
            return Ok(None);
        }
        let (Ok(bytes), Ok(mapped_bytes)) =
            (usize::try_from(bytes), usize::try_from(bytes.div_ceil(page).saturating_mul(page)))
        else {
            return Ok(None);
        };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new addresses, of the system's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), mapped_bytes, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = Self { start, mapped_bytes, bytes };
        let mut at = 0;
        for (offset, bytes) in pieces {
            let Ok(offset) = libc::off_t::try_from(*offset) else { return Ok(None) };
            let length = *bytes as usize;
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            let descriptor = std::os::fd::AsRawFd::as_raw_fd(file);
            // SAFETY: replaces pages inside of the addresses that were mapped above and that nothing else knows of yet.
            let placed = unsafe { libc::mmap(start.byte_add(at), length, libc::PROT_READ, flags, descriptor, offset) };
            if placed == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            at += length;
        }
        Ok(Some(memory))
    }
}

impl Drop for PieceMemory {
    fn drop(&mut self) {
        // SAFETY: all of it was mapped by `map`, and nothing borrows it any more.
        unsafe { libc::munmap(self.start, self.mapped_bytes) };
    }
}

impl GuardedMap {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        install_handler()?;
        let file = fs::File::open(path)?;
        // SAFETY: the bytes must not change while they are mapped. `Files::map` is for files that are complete, never written again and only
        // ever removed by their names, and the folder's lock keeps other processes of the database out. Where another program cuts the
        // file, the missing pages become zeros and the map is marked: see `handle`.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        let region = Region::claim(map.as_ptr() as usize, map.len());
        Ok(Self { memory: Memory::Whole(map), region })
    }

    /// Pieces of a file (offset and length) as one memory; the bytes in them must not change while it is there, as those of `open`. `None`
    /// where they do not fit to the system's pages.
    pub(crate) fn of_pieces(file: &fs::File, pieces: &[(u64, u64)]) -> io::Result<Option<Self>> {
        install_handler()?;
        let Some(memory) = PieceMemory::map(file, pieces)? else { return Ok(None) };
        let region = Region::claim(memory.start as usize, memory.mapped_bytes);
        Ok(Some(Self { memory: Memory::Pieces(memory), region }))
    }
}

impl MappedFile for GuardedMap {
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Whole(map) => map,
            // SAFETY: so many bytes are mapped there, readable, until this is dropped; they do not change: see `of_pieces`.
            Memory::Pieces(pieces) => unsafe { std::slice::from_raw_parts(pieces.start.cast(), pieces.bytes) },
        }
    }

    fn is_readable(&self) -> bool {
        !self.region.failed.load(Ordering::Acquire)
    }
}

impl Drop for GuardedMap {
    fn drop(&mut self) {
        self.region.release();
    }
}

/// The addresses of a map. Regions form a list that only grows, so that a signal handler may walk it at any moment; one that is free is
/// used again.
struct Region {
    start: AtomicUsize,
    /// 0 while the region is free.
    end: AtomicUsize,
    failed: AtomicBool,
    is_taken: AtomicBool,
    next: AtomicPtr<Region>,
}

static REGIONS: AtomicPtr<Region> = AtomicPtr::new(ptr::null_mut());

/// All regions, newest first.
fn regions() -> impl Iterator<Item = &'static Region> {
    let mut at = REGIONS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: the list holds leaked boxes only.
        let region: &'static Region = unsafe { at.as_ref()? };
        at = region.next.load(Ordering::Acquire);
        Some(region)
    })
}

impl Region {
    fn claim(start: usize, length: usize) -> &'static Self {
        let is_free = |region: &&'static Self| !region.is_taken.swap(true, Ordering::AcqRel);
        let region = regions().find(is_free).unwrap_or_else(Self::add);
        region.failed.store(false, Ordering::Release);
        region.start.store(start, Ordering::Release);
        region.end.store(start.saturating_add(length), Ordering::Release);
        region
    }

    fn add() -> &'static Self {
        let region = Box::leak(Box::new(Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            is_taken: AtomicBool::new(true),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        let mut head = REGIONS.load(Ordering::Acquire);
        loop {
            region.next.store(head, Ordering::Release);
            match REGIONS.compare_exchange(head, region, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return region,
                Err(other) => head = other,
            }
        }
    }

    fn release(&self) {
        self.end.store(0, Ordering::Release);
        self.start.store(0, Ordering::Release);
        self.is_taken.store(false, Ordering::Release);
    }

    fn contains(&self, address: usize) -> bool {
        (self.start.load(Ordering::Acquire)..self.end.load(Ordering::Acquire)).contains(&address)
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// What handled the signal before: the runtime's detection of stack overflows.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);

fn install_handler() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: sysconf has no preconditions. The structures are plain data that may be zero, and the handler is a function of the type
        // that SA_SIGINFO asks for. It does only what a handler of signals may: it reads atomics and calls mmap.
        unsafe {
            if let Ok(bytes) = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)) {
                PAGE_BYTES.store(bytes.max(1), Ordering::Release);
            }
            let mut previous: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or_default());
            }
            let _ = PREVIOUS.set(previous);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as Handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            if libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error().raw_os_error().unwrap_or_default());
            }
        }
        Ok(())
    });
    installed.map_err(io::Error::from_raw_os_error)
}

/// Puts zeros where a page of a map cannot be read, and marks the map. Other faults are not ours.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes the information of a fault, which has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let Some(region) = regions().find(|region| region.contains(address)) else {
        pass_on(signal, info, context);
        return;
    };
    region.failed.store(true, Ordering::Release);
    let page_bytes = PAGE_BYTES.load(Ordering::Acquire);
    let page = (address / page_bytes * page_bytes) as *mut libc::c_void;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page belongs to a map of this process that is only read; it cannot be read now, and what takes its place can.
    let placed = unsafe { libc::mmap(page, page_bytes, libc::PROT_READ, flags, -1, 0) };
    if placed == libc::MAP_FAILED {
        pass_on(signal, info, context);
    }
}

/// Calls what handled the signal before, or lets the fault happen again with the system's own handling.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().filter(|previous| {
        previous.sa_flags & libc::SA_SIGINFO != 0 && ![libc::SIG_DFL, libc::SIG_IGN].contains(&previous.sa_sigaction)
    });
    match previous {
        // SAFETY: with SA_SIGINFO the address is that of a function of this type.
        Some(previous) => unsafe {
            std::mem::transmute::<libc::sighandler_t, Handler>(previous.sa_sigaction)(signal, info, context);
        },
        // SAFETY: restores the system's handling; the instruction that failed is tried again and ends the process.
        None => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of a file that is cut while it is mapped reads as zeros, and the map says so; other maps are not touched.
    #[test]
    fn a_file_that_is_cut_does_not_end_the_process() {
        let directory = std::env::temp_dir().join(format!("thalweg-mapped-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let [cut, whole] = ["cut", "whole"].map(|name| directory.join(name));
        for path in [&cut, &whole] {
            fs::write(path, vec![7; 64 << 10]).unwrap();
        }
        let maps = [&cut, &whole].map(|path| GuardedMap::open(path).unwrap());
        assert_eq!(maps[0].bytes()[60 << 10], 7);
        for _ in 0..2 {
            fs::OpenOptions::new().write(true).open(&cut).unwrap().set_len(8 << 10).unwrap();
            assert_eq!(maps[0].bytes()[60 << 10], 0);
            assert_eq!(maps[0].bytes()[20 << 10], 0);
            assert_eq!(maps[0].bytes()[4 << 10], 7);
            assert!(!maps[0].is_readable() && maps[1].is_readable());
            assert_eq!(maps[1].bytes()[60 << 10], 7);
        }
        drop(maps);
        let again = GuardedMap::open(&whole).unwrap();
        assert!(again.is_readable() && again.bytes().iter().all(|byte| *byte == 7));
        drop(again);
        fs::remove_dir_all(&directory).unwrap();
    }
}
