//! The measurement itself, with the system's own calls.
#![allow(
    unsafe_code,
    reason = "io_uring takes addresses of buffers, and a map of a file is one; both live until the batch is read"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use io_uring::{IoUring, opcode, types};

/// Blocks that a batch knows in advance.
const BATCH: usize = 256;
const BATCHES: usize = 12;
const ALIGNMENT: usize = 4096;

/// One way to read a batch.
#[derive(Debug, Clone, Copy)]
enum Way {
    Pread,
    Map,
    /// The system is told of all blocks before the first one is read.
    ToldPread,
    ToldMap,
    Threads(usize),
    DirectThreads(usize),
    Ring(u32),
    DirectRing(u32),
}

/// A buffer that direct reads accept.
struct Aligned {
    start: *mut u8,
    layout: Layout,
}

impl Aligned {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).unwrap();
        // SAFETY: the layout is not empty.
        Self { start: unsafe { alloc_zeroed(layout) }, layout }
    }

    fn slice(&mut self) -> &mut [u8] {
        // SAFETY: the buffer has this many bytes, all initialised, and is borrowed as long as the slice is.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start, self.layout) }
    }
}

struct Files {
    buffered: File,
    direct: File,
    bytes: u64,
}

impl Files {
    fn make(path: &Path, mib: u64) -> Self {
        let (mut file, mut random) = (File::create(path).unwrap(), 0x9e37_79b9_7f4a_7c15u64);
        let mut block = vec![0u8; 1 << 20];
        for _ in 0..mib {
            for word in block.as_chunks_mut::<8>().0 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *word = random.to_le_bytes();
            }
            file.write_all(&block).unwrap();
        }
        file.sync_all().unwrap();
        let buffered = File::open(path).unwrap();
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
        Self { buffered, direct, bytes: mib << 20 }
    }

    /// Has the system forget what it holds of the file.
    fn drop_cached(&self) {
        // SAFETY: a call about a descriptor that is open.
        unsafe { libc::posix_fadvise(self.buffered.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        // SAFETY: the same.
        unsafe { libc::posix_fadvise(self.buffered.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    }
}

/// Places of the blocks of a batch, different ones for each, in the order of the file.
fn places(batch: usize, block: usize, bytes: u64) -> Vec<u64> {
    let mut random = 0x2545_f491_4f6c_dd1du64.wrapping_mul(batch as u64 + 1);
    let mut places: Vec<u64> = (0..BATCH)
        .map(|_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % (bytes / block as u64) * block as u64
        })
        .collect();
    places.sort_unstable();
    places
}

fn read(way: Way, files: &Files, places: &[u64], block: usize, buffers: &mut Aligned) {
    match way {
        Way::Pread => {
            for (place, buffer) in places.iter().zip(buffers.slice().chunks_exact_mut(block)) {
                files.buffered.read_exact_at(buffer, *place).unwrap();
            }
        }
        Way::ToldPread => {
            tell(&files.buffered, places, block);
            read(Way::Pread, files, places, block, buffers);
        }
        Way::ToldMap => {
            tell(&files.buffered, places, block);
            read(Way::Map, files, places, block, buffers);
        }
        Way::Map => {
            // SAFETY: nothing changes the file.
            let map = unsafe { memmap2::Mmap::map(&files.buffered).unwrap() };
            map.advise(memmap2::Advice::Random).unwrap();
            for (place, buffer) in places.iter().zip(buffers.slice().chunks_exact_mut(block)) {
                buffer.copy_from_slice(&map[*place as usize..][..block]);
            }
        }
        Way::Threads(threads) => by_threads(&files.buffered, threads, places, block, buffers),
        Way::DirectThreads(threads) => by_threads(&files.direct, threads, places, block, buffers),
        Way::Ring(depth) => by_ring(&files.buffered, depth, places, block, buffers),
        Way::DirectRing(depth) => by_ring(&files.direct, depth, places, block, buffers),
    }
}

fn tell(file: &File, places: &[u64], block: usize) {
    for place in places {
        // SAFETY: a call about a descriptor that is open.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), *place as i64, block as i64, libc::POSIX_FADV_WILLNEED) };
    }
}

fn by_threads(file: &File, threads: usize, places: &[u64], block: usize, buffers: &mut Aligned) {
    let next = AtomicUsize::new(0);
    let buffers: Vec<std::sync::Mutex<&mut [u8]>> =
        buffers.slice().chunks_exact_mut(block).map(std::sync::Mutex::new).collect();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(place) = places.get(index) else { break };
                    file.read_exact_at(&mut buffers[index].lock().unwrap(), *place).unwrap();
                }
            });
        }
    });
}

/// With registered buffers and a registered file.
fn by_ring(file: &File, depth: u32, places: &[u64], block: usize, buffers: &mut Aligned) {
    let mut ring = IoUring::new(depth).unwrap();
    let all = buffers.slice();
    let vector = libc::iovec { iov_base: all.as_mut_ptr().cast(), iov_len: all.len() };
    // SAFETY: the buffer lives longer than the ring.
    unsafe { ring.submitter().register_buffers(&[vector]).unwrap() };
    ring.submitter().register_files(&[file.as_raw_fd()]).unwrap();
    let (mut submitted, mut done) = (0, 0);
    while done < places.len() {
        while submitted < places.len() && submitted - done < depth as usize {
            let buffer = all[submitted * block..].as_mut_ptr();
            let entry =
                opcode::ReadFixed::new(types::Fixed(0), buffer, block as u32, 0).offset(places[submitted]).build();
            // SAFETY: the buffer is this block's own until its read has completed.
            unsafe { ring.submission().push(&entry).unwrap() };
            submitted += 1;
        }
        ring.submit_and_wait(1).unwrap();
        for completion in ring.completion() {
            assert_eq!(completion.result(), block as i32);
            done += 1;
        }
    }
}

fn cpu_ms() -> f64 {
    // SAFETY: the structure is the call's to fill.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let ms = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    ms(usage.ru_utime) + ms(usage.ru_stime)
}

pub(super) fn run() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let mib = arguments.next().map_or(2048, |mib| mib.parse().unwrap());
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join("thalweg-cold-reads");
    let files = Files::make(&path, mib);
    let ways = [
        Way::Pread,
        Way::Map,
        Way::ToldPread,
        Way::ToldMap,
        Way::Threads(2),
        Way::Threads(4),
        Way::Threads(16),
        Way::DirectThreads(4),
        Way::DirectThreads(16),
        Way::Ring(1),
        Way::Ring(16),
        Way::Ring(64),
        Way::DirectRing(1),
        Way::DirectRing(4),
        Way::DirectRing(16),
        Way::DirectRing(64),
    ];
    println!("{mib} MiB, batches of {BATCH} blocks, median of {BATCHES}: milliseconds, CPU ms of a batch");
    for block in [4 << 10, 16 << 10, 64 << 10] {
        let mut buffers = Aligned::new(BATCH * block);
        // The ways take turns, so that a busy moment of the machine meets all of them.
        let (mut elapsed_ms, mut used_ms) = (vec![Vec::new(); ways.len()], vec![0.0; ways.len()]);
        for batch in 0..BATCHES {
            let places = places(batch, block, files.bytes);
            for (index, way) in ways.iter().enumerate() {
                files.drop_cached();
                let (started, before_ms) = (Instant::now(), cpu_ms());
                read(*way, &files, &places, block, &mut buffers);
                elapsed_ms[index].push(started.elapsed().as_secs_f64() * 1e3);
                used_ms[index] += cpu_ms() - before_ms;
            }
        }
        for (index, way) in ways.iter().enumerate() {
            elapsed_ms[index].sort_by(f64::total_cmp);
            let (median_ms, cpu_ms) = (elapsed_ms[index][BATCHES / 2], used_ms[index] / BATCHES as f64);
            println!("{:3} KiB  {:18} {median_ms:8.2} {cpu_ms:8.2}", block >> 10, format!("{way:?}"));
        }
    }
    std::fs::remove_file(path).unwrap();
}
