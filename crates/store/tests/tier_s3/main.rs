//! The object tier against a real S3 server, with a proxy between them that spoils requests by script.
//!
//! The server is `s3s-fs` inside the test. `THALWEG_TEST_S3_URL=http://127.0.0.1:5000` runs the same tests against
//! another one, for example moto's (`moto_server -p 5000`), as a second opinion; `THALWEG_TEST_AZURE_URL=http://127.0.0.1:10000`
//! against Azure's emulator (`npx azurite-blob --skipApiVersionCheck`).

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod proxy;
mod server;
mod world;

use std::ops::Range;

use platform::Platform;
use platform::objects::{Content, ObjectError, ObjectErrorKind, ObjectOptions, PutCondition, Version};
use proxy::Fault;
use server::ACCESS_KEY;
use thalweg_store::tier::{ManifestPut, Tier, TierOptions, Uploaded};
use world::{PART_BYTES, World, content, crc32c};

/// One call of the tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Upload,
    Read,
    Verify,
    List,
    Delete,
    LoadManifest,
    PutManifest,
    Probe,
}

const CALLS: [Call; 8] = [
    Call::Upload,
    Call::Read,
    Call::Verify,
    Call::List,
    Call::Delete,
    Call::LoadManifest,
    Call::PutManifest,
    Call::Probe,
];

/// Faults that may pass.
const PASSING: [Fault; 11] = [
    Fault::Answer(500, "InternalError"),
    Fault::Answer(503, "SlowDown"),
    Fault::Answer(503, "ServiceUnavailable"),
    Fault::Answer(429, "TooManyRequests"),
    Fault::Stall,
    Fault::CutUpload,
    Fault::CutDownload,
    Fault::StallDownload,
    Fault::LoseAnswer,
    Fault::Refuse,
    Fault::Slow,
];

/// Keys, contents and versions that are there before a call.
struct Before {
    old: Vec<u8>,
    part: Vec<u8>,
    uploaded: Uploaded,
    manifest: Version,
}

const RANGES: [Range<u64>; 3] = [10..90_000, 150_000..150_001, 199_000..200_000];

fn prepare(world: &World) -> Before {
    let direct = world.direct();
    let part = content(1, 200_000);
    let old = content(2, 1_000);
    direct.put("parts/1", Content::Bytes(&part), &PutCondition::Always).unwrap();
    direct.put("parts/2", Content::Bytes(&old), &PutCondition::Always).unwrap();
    direct.delete("parts/3").unwrap();
    let manifest = direct.put("MANIFEST", Content::Bytes(b"epoch 1"), &PutCondition::Always).unwrap();
    let uploaded = Uploaded { size_bytes: part.len() as u64, checksum: crc32c(&part) };
    Before { old, part, uploaded, manifest }
}

/// Makes a call. What it answers must be right; what it leaves must be whole, whatever it answers.
fn call(world: &World, tier: &Tier, call: Call, before: &Before) -> Result<(), ObjectError> {
    match call {
        Call::Upload => {
            let new = content(3, 300_000);
            let uploaded = tier.upload(&world.file(&new), "parts/3");
            world.proxy.play(&[]);
            match (&uploaded, world.object("parts/3")) {
                (Ok(uploaded), found) => {
                    assert_eq!(found.as_ref(), Some(&new), "acknowledged");
                    assert_eq!(*uploaded, Uploaded { size_bytes: 300_000, checksum: crc32c(&new) });
                }
                (Err(_), Some(found)) => assert!(found == new, "an object that is there is whole"),
                (Err(_), None) => {}
            }
            uploaded.map(drop)
        }
        Call::Read => {
            let found = tier.read("parts/1", before.part.len() as u64, &RANGES)?;
            for (found, range) in found.iter().zip(RANGES) {
                assert!(found == &before.part[range.start as usize..range.end as usize], "{range:?}");
            }
            Ok(())
        }
        Call::Verify => tier.verify("parts/1", before.uploaded),
        Call::List => {
            let found = tier.list("parts", 100)?;
            let found: Vec<(&str, u64)> = found.iter().map(|object| (&*object.key, object.size_bytes)).collect();
            assert_eq!(found, [("parts/1", 200_000), ("parts/2", 1_000)]);
            Ok(())
        }
        Call::Delete => {
            let deleted = tier.delete("parts/2");
            world.proxy.play(&[]);
            match (&deleted, world.object("parts/2")) {
                (Ok(()), found) => assert_eq!(found, None),
                (Err(_), found) => assert!(found.is_none_or(|found| found == before.old)),
            }
            deleted
        }
        Call::LoadManifest => {
            let found = tier.load_manifest("MANIFEST", 1_000)?.unwrap();
            assert_eq!((found.bytes.as_slice(), &found.version), (&b"epoch 1"[..], &before.manifest));
            Ok(())
        }
        Call::PutManifest => {
            let put = tier.put_manifest("MANIFEST", b"epoch 2", Some(&before.manifest));
            world.proxy.play(&[]);
            let found = world.object("MANIFEST").unwrap();
            match &put {
                Ok(ManifestPut::Written(_)) => assert_eq!(found, b"epoch 2"),
                Ok(ManifestPut::Fenced(found)) => panic!("fenced though nobody else wrote: {found:?}"),
                Err(_) => assert!(found == b"epoch 1" || found == b"epoch 2"),
            }
            put.map(drop)
        }
        Call::Probe => {
            assert!(tier.probe()?.conditional_put);
            Ok(())
        }
    }
}

#[test]
fn every_call_does_what_it_says() {
    let world = World::start();
    let tier = world.tier();
    for one in CALLS {
        call(&world, &tier, one, &prepare(&world)).unwrap();
    }
}

#[test]
fn every_call_survives_one_fault_that_passes() {
    let world = World::start();
    let tier = world.impatient_tier();
    for fault in PASSING {
        for one in CALLS {
            let before = prepare(&world);
            world.proxy.play(&[fault]);
            let outcome = call(&world, &tier, one, &before);
            // A conditional put is sent once: it is for the caller to find out what became of it.
            let conditional = matches!(one, Call::PutManifest);
            match outcome {
                Ok(()) => {}
                Err(error) if conditional && error.kind == ObjectErrorKind::Busy => {}
                Err(error) => panic!("{one:?} under {fault:?}: {:?} {error}", error.kind),
            }
        }
    }
}

#[test]
fn every_call_survives_a_fault_in_any_of_its_requests() {
    let world = World::start();
    let tier = world.tier();
    for fault in [Fault::Answer(503, "SlowDown"), Fault::CutUpload, Fault::CutDownload, Fault::LoseAnswer] {
        for one in CALLS {
            for place in 0..4 {
                let before = prepare(&world);
                let mut faults = vec![Fault::Pass; place];
                faults.push(fault);
                world.proxy.play(&faults);
                match call(&world, &tier, one, &before) {
                    Ok(()) => {}
                    Err(error) if one == Call::PutManifest && error.kind == ObjectErrorKind::Busy => {}
                    // Its conditional puts are sent once, too.
                    Err(error) if one == Call::Probe && error.kind == ObjectErrorKind::Busy => {}
                    Err(error) => panic!("{one:?}, {fault:?} at {place}: {:?} {error}", error.kind),
                }
            }
        }
    }
}

#[test]
fn a_fault_that_stays_is_told_as_what_it_is() {
    let world = World::start();
    let tier = world.impatient_tier();
    let lasting = [
        (Fault::Answer(500, "InternalError"), ObjectErrorKind::Busy),
        (Fault::Answer(503, "SlowDown"), ObjectErrorKind::Busy),
        (Fault::Stall, ObjectErrorKind::Busy),
        (Fault::CutUpload, ObjectErrorKind::Busy),
        (Fault::CutDownload, ObjectErrorKind::Busy),
        (Fault::LoseAnswer, ObjectErrorKind::Busy),
        (Fault::Refuse, ObjectErrorKind::Busy),
        (Fault::Answer(403, "AccessDenied"), ObjectErrorKind::Denied),
        (Fault::Answer(401, "Unauthorized"), ObjectErrorKind::Denied),
        (Fault::Answer(400, "ExpiredToken"), ObjectErrorKind::Denied),
        (Fault::Answer(404, "NoSuchBucket"), ObjectErrorKind::Config),
        (Fault::Answer(301, "PermanentRedirect"), ObjectErrorKind::Config),
        (Fault::Answer(400, "InvalidRequest"), ObjectErrorKind::Other),
    ];
    for (fault, expected) in lasting {
        for one in CALLS {
            let before = prepare(&world);
            world.proxy.repeat(fault);
            let kind = match call(&world, &tier, one, &before) {
                Ok(()) => panic!("{one:?} under {fault:?} succeeded"),
                Err(error) => {
                    assert!(error.to_string().contains(&world.url()), "{error}");
                    error.kind
                }
            };
            // An answer to HEAD has no body that would tell a missing bucket from a missing object, or an expired
            // token from a bad request.
            let heads_first = matches!(one, Call::Verify | Call::LoadManifest);
            let told = kind == expected || (heads_first && kind == ObjectErrorKind::Other);
            assert!(told, "{one:?} under {fault:?}: {kind:?}, expected {expected:?}");
        }
    }
}

#[test]
fn retries_are_bounded_and_counted() {
    let world = World::start();
    let objects = world.open(&world.options());
    world.proxy.repeat(Fault::Answer(503, "SlowDown"));
    let error = objects.head("a").unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Busy);
    assert_eq!(world.proxy.requests(), 4, "once and three times again");
    let counters = objects.counters();
    assert_eq!((counters.requests, counters.requests_failed), (4, 4));
    world.proxy.play(&[Fault::Answer(500, "InternalError"), Fault::Refuse]);
    assert_eq!(objects.head("a").unwrap_err().kind, ObjectErrorKind::Missing);
    let counters = objects.counters();
    assert_eq!((counters.requests, counters.requests_failed), (7, 6));
}

#[test]
fn large_files_go_up_in_parts_whatever_is_cut() {
    let world = World::start();
    let tier = world.tier();
    let bytes = content(5, 2 * PART_BYTES + 12_345);
    let local = world.file(&bytes);
    let uploaded = tier.upload(&local, "parts/large").unwrap();
    assert_eq!(uploaded.size_bytes, bytes.len() as u64);
    assert!(world.object("parts/large").unwrap() == bytes);
    let cut = [Fault::Pass, Fault::CutUpload, Fault::LoseAnswer, Fault::Answer(503, "SlowDown"), Fault::CutDownload];
    for rotation in 0..cut.len() {
        let mut faults = cut;
        faults.rotate_left(rotation);
        world.direct().delete("parts/large").unwrap();
        world.proxy.play(&faults);
        let uploaded = tier.upload(&local, "parts/large");
        world.proxy.play(&[]);
        match (uploaded, world.object("parts/large")) {
            (Ok(_), found) => assert!(found.unwrap() == bytes, "{faults:?}"),
            (Err(error), found) => {
                assert_eq!(error.kind, ObjectErrorKind::Busy, "{faults:?}: {error}");
                assert!(found.is_none_or(|found| found == bytes), "{faults:?}");
            }
        }
    }
    world.direct().delete("parts/large").unwrap();
    world.proxy.repeat(Fault::CutUpload);
    let error = tier.upload(&local, "parts/large").unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Busy, "{error}");
    assert_eq!(world.object("parts/large"), None, "a cut upload is no object");
}

#[test]
fn conditions_keep_writers_apart() {
    let world = World::start();
    let (ours, theirs) = (world.tier(), world.tier());
    let Ok(ManifestPut::Written(first)) = ours.put_manifest("MANIFEST", b"ours 1", None) else { panic!() };
    let Ok(ManifestPut::Fenced(Some(found))) = theirs.put_manifest("MANIFEST", b"theirs 1", None) else { panic!() };
    assert_eq!((found.bytes.as_slice(), &found.version), (&b"ours 1"[..], &first));
    let put = theirs.put_manifest("MANIFEST", b"theirs 2", Some(&found.version)).unwrap();
    assert!(matches!(put, ManifestPut::Written(_)));
    let put = ours.put_manifest("MANIFEST", b"ours 2", Some(&first)).unwrap();
    assert!(matches!(put, ManifestPut::Fenced(Some(found)) if found.bytes == b"theirs 2"));
    // The answer to the put is lost; what is read back tells that it was ours.
    let current = ours.load_manifest("MANIFEST", 100).unwrap().unwrap().version;
    world.proxy.play(&[Fault::LoseAnswer]);
    let put = ours.put_manifest("MANIFEST", b"ours 3", Some(&current)).unwrap();
    assert!(matches!(put, ManifestPut::Written(_)), "{put:?}");
    assert_eq!(world.object("MANIFEST").unwrap(), b"ours 3");
}

#[test]
fn of_many_writers_at_once_one_wins() {
    if !server::is_other() {
        // s3s-fs looks at the condition first and writes then, with nothing between that keeps others out.
        return;
    }
    let world = World::start();
    let tier = world.tier_over(world.direct());
    let mut version: Option<Version> = None;
    for round in 0..10 {
        let puts: Vec<ManifestPut> = std::thread::scope(|scope| {
            let writer = |number: usize| {
                let (tier, version) = (&tier, version.as_ref());
                // A store that sees several at once may ask for another try.
                move || loop {
                    let bytes = format!("round {round} writer {number}");
                    match tier.put_manifest("MANIFEST", bytes.as_bytes(), version) {
                        Err(error) if error.kind == ObjectErrorKind::Busy => {}
                        put => break put.unwrap(),
                    }
                }
            };
            let writers: Vec<_> = (0..4).map(|number| scope.spawn(writer(number))).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        let won: Vec<&Version> = puts
            .iter()
            .filter_map(|put| match put {
                ManifestPut::Written(version) => Some(version),
                ManifestPut::Fenced(_) => None,
            })
            .collect();
        assert_eq!(won.len(), 1, "round {round}: {puts:?}");
        version = won.first().copied().cloned();
    }
}

#[test]
fn wrong_credentials_are_denied_and_wrong_settings_are_named() {
    if server::is_other() {
        // It may take any key.
        return;
    }
    let world = World::start();
    let mut options = world.options();
    options.settings =
        vec![("aws_access_key_id".into(), ACCESS_KEY.into()), ("aws_secret_access_key".into(), "wrong".into())];
    let error = world.tier_over(world.open(&options)).probe().unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Denied, "{error}");
    let text = error.to_string();
    assert!(text.contains("check the credentials") && text.contains("could not store") && text.contains(&world.url()));
    let plain = ObjectOptions { allow_http: false, ..world.options() };
    let error = world.tier_over(world.open(&plain)).probe().unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Config, "plain HTTP is not allowed: {error}");
    options.settings.push(("aws_acess_key".into(), "x".into()));
    let error = Platform::real().objects.open(&world.url(), &options).err().unwrap();
    assert!(error.kind == ObjectErrorKind::Config && error.to_string().contains("aws_acess_key"), "{error}");
}

#[test]
fn a_wrong_bucket_is_a_setting() {
    if !server::is_other() {
        // s3s-fs makes a bucket of whatever is named.
        return;
    }
    let world = World::start();
    let tier =
        world.tier_over(Platform::real().objects.open(&world.url_of("no-such-bucket"), &world.options()).unwrap());
    let (probed, loaded) = (tier.probe().unwrap_err(), tier.load_manifest("MANIFEST", 100).unwrap_err());
    assert_eq!(probed.kind, ObjectErrorKind::Config, "{probed}");
    assert_eq!(loaded.kind, ObjectErrorKind::Config, "a wrong bucket is not an empty one: {loaded}");
}

#[test]
fn lists_go_on_behind_a_page() {
    let world = World::start();
    let direct = world.direct();
    let keys: Vec<String> = (0..25).map(|number| format!("parts/{number:04}")).collect();
    for key in &keys {
        direct.put(key, Content::Bytes(b"x"), &PutCondition::Always).unwrap();
    }
    direct.put("partsx", Content::Bytes(b"x"), &PutCondition::Always).unwrap();
    let page = direct.list("parts", Some("parts/0009"), 10).unwrap();
    assert_eq!(page.iter().map(|object| object.key.as_str()).collect::<Vec<_>>(), keys[10..20]);
    assert_eq!(direct.list("parts", None, 1_000).unwrap().len(), 25);
    assert_eq!(direct.list("", None, 1_000).unwrap().len(), 26);
    assert_eq!(direct.list("nothing", None, 1_000).unwrap(), []);
    let error = world.tier().list("parts", 10).unwrap_err();
    assert!(error.to_string().contains("more than 10"), "{error}");
}

#[test]
fn a_call_from_asynchronous_code_is_slow_but_no_panic() {
    let world = World::start();
    let listed = world.server.runtime.block_on(async { world.tier().list("", 10) });
    assert_eq!(listed.unwrap(), []);
}

#[test]
fn a_store_out_of_reach_is_busy() {
    let world = World::start();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = ObjectOptions { endpoint: Some(format!("http://{closed}")), ..world.options() };
    let error = world.tier_over(world.open(&options)).probe().unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Busy, "{error}");
}

#[test]
fn threads_read_in_parallel_what_is_there() {
    let world = World::start();
    let bytes = content(7, 3_000_000);
    world.direct().put("a", Content::Bytes(&bytes), &PutCondition::Always).unwrap();
    let tier = Tier::open(Platform::real(), world.direct(), TierOptions::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (tier, bytes) = (&tier, &bytes);
            scope.spawn(move || {
                for step in 0..40_u64 {
                    let start = (step * 71_993 + thread * 333_331) % 2_900_000;
                    let ranges = [start..start + 1_000, start / 2..start / 2 + 90_000];
                    for (found, range) in tier.read("a", 3_000_000, &ranges).unwrap().iter().zip(ranges) {
                        assert!(found == &bytes[range.start as usize..range.end as usize]);
                    }
                }
            });
        }
    });
    let counters = tier.counters();
    assert!(counters.objects.received_bytes <= 2 * 3_000_000, "each block about once: {counters:?}");
}
