//! Ctrl-C: what was read is still sent, so that it is known how far a file came.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a program that Ctrl-C ended.
const EXIT_CODE: u8 = 130;

/// Whether Ctrl-C was pressed.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens until the program ends. A second Ctrl-C ends it at once.
    pub(super) fn listen() -> Self {
        let interrupt = Self::default();
        let pressed = interrupt.0.clone();
        // Without a runtime Ctrl-C ends the program, as it does by default.
        if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
            std::thread::spawn(move || {
                runtime.block_on(async {
                    while tokio::signal::ctrl_c().await.is_ok() {
                        if pressed.swap(true, Ordering::Relaxed) {
                            eprintln!("ended at once: the last batches may be written or not");
                            std::process::exit(EXIT_CODE.into());
                        }
                        eprintln!("sending what was read; Ctrl-C again ends at once");
                    }
                });
            });
        }
        interrupt
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn exit_code() -> ExitCode {
        ExitCode::from(EXIT_CODE)
    }
}
